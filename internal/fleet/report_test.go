package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// An agent without heads for long has more to report than one transaction holds. Each request stores the first ones
// that fit, and acknowledges them.
func TestManyReportsAtOnce(t *testing.T) {
	r := newRack(t)
	actions := make([]trivet.Action, trivet.MaxActions)
	var reports []trivet.Report
	for i := range actions {
		name := fmt.Sprint("a", i)
		actions[i] = trivet.Action{Name: name, Use: "noop", Retries: 1}
		for attempt, state := range []trivet.StepState{trivet.StepFailed, trivet.StepDone} {
			for _, s := range []trivet.StepState{trivet.StepRunning, state} {
				reports = append(reports, trivet.Report{Seq: int64(len(reports) + 1), Action: name, State: s,
					Attempt: attempt + 1, Cause: strings.Repeat("c", 9000), Note: strings.Repeat("n", 9000)})
			}
		}
	}
	r.write(func(tx *store.Tx) error {
		return r.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
			Spec: trivet.TemplateSpec{Actions: actions}})
	})
	r.provision("p")
	r.must(r.hello("k1", 0))
	requests := 0
	for acked := int64(0); acked < int64(len(reports)); requests++ {
		r.must(r.report(1, "k1", reports[acked:]...))
		w, err := r.Workflows.Get("default/p-1")
		r.must(err)
		if w.Status.Acked == acked {
			t.Fatalf("after %d requests %d of %d reports are acknowledged, and no more", requests, acked, len(reports))
		}
		acked = w.Status.Acked
	}
	if m := r.machine(); m.Status.State != trivet.MachineActive || requests > 4 {
		t.Errorf("after %d requests the machine is %s", requests, m.Status.State)
	}
}

// What an agent reports is accepted while the store is full, also where it could not report for a while.
func TestReportsInAFullStore(t *testing.T) {
	usage := cluster.Usage{Quota: 100 << 20}
	opts := store.Options{Admit: func(added int, growth int64) error { return usage.Admit(added, growth) }}
	r := rackOn(t, fleet.New(storetest.On(t, storetest.Member(t), opts, state.New), "head0"))
	var actions []trivet.Action
	var reports []trivet.Report
	for i := range 20 {
		name := fmt.Sprint("a", i)
		actions = append(actions, trivet.Action{Name: name, Use: "noop"})
		reports = append(reports, trivet.Report{Seq: int64(i + 1), Action: name, State: trivet.StepDone, Attempt: 1})
	}
	r.write(func(tx *store.Tx) error {
		return r.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
			Spec: trivet.TemplateSpec{Actions: actions}})
	})
	r.provision("p")
	r.must(r.hello("k1", 0))
	usage.Used = 95 << 20
	r.must(r.report(1, "k1", reports...))
	if m := r.machine(); m.Status.State != trivet.MachineActive {
		t.Errorf("the machine is %s", m.Status.State)
	}
}
