package head_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// A head that starts with ended runs in its store soon has the last one of each machine in memory, and no other. Its
// commands show all of them as before, also after the next start.
func TestEndedRunsLeaveMemory(t *testing.T) {
	const runs = 5
	h := newHead(t)
	h.Apply("{kind: Machine, name: m9, spec: {nics: [{mac: '52:54:00:77:00:09'}]}}")
	h.Stop()
	h.writeEndedRuns("m9", runs)
	for range 2 {
		h.Up()
		h.Await("one run is in memory", func() error {
			if n := h.metric(t, `trivet_store_records{kind="Workflow"} `); n != 1 {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		list := h.MustTrivet("get", "workflows")
		ofMachine := h.MustTrivet("get", "workflows", "--field", "spec.machine=m9")
		for i := range runs {
			name := fmt.Sprint("r-", i+1)
			if one := h.MustTrivet("get", "workflow", name); !strings.Contains(one, name) ||
				!strings.Contains(list, name) || !strings.Contains(ofMachine, name) {
				t.Errorf("%s: get shows\n%s\nthe list is\n%s\nthat of the machine\n%s", name, one, list, ofMachine)
			}
		}
		h.Stop()
	}
	h.raw(func(c storedRecords) {
		got, err := c.Get(t.Context(), "/trivet-history/workflow/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count != runs-1 {
			t.Errorf("%v former runs, %v; want %d", got, err, runs-1)
		}
	})
}

// writeEndedRuns writes runs r-1 and so on of a machine, of which the last one is the machine's, as the head would have
// an hour ago. The head does not run.
func (h *head) writeEndedRuns(machine string, runs int) {
	h.Helper()
	h.raw(func(c storedRecords) {
		s := store.New(c.Client, store.Options{Head: "head0", Cipher: c.cipher})
		tables := state.New(s)
		if err := s.Start(h.Context()); err != nil {
			h.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Update(h.Context(), func(tx *store.Tx) error {
			m, err := tables.Machines.In(tx).Get(machine)
			if err != nil {
				return err
			}
			m.Status.Workflow = fmt.Sprint("r-", runs)
			if err := tables.Machines.In(tx).Put(m); err != nil {
				return err
			}
			for i := range runs {
				w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("r-", i+1)},
					Spec: trivet.WorkflowSpec{Machine: machine, MachineUID: m.UID, Provision: "r"},
					Status: trivet.WorkflowStatus{State: trivet.WorkflowSucceeded,
						Ended: time.Now().Add(-time.Hour)}}
				if err := tables.Workflows.In(tx).Create(w); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			h.Fatal(err)
		}
	})
}
