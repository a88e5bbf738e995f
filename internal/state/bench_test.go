package state_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A provision finds its machine among 100,000, of which every 40th has both labels, and a machine the oldest of 1,000
// provisions that wait.
func BenchmarkWaiting(b *testing.B) {
	const machines, waiting, batch = 100_000, 1_000, 50
	tables := storetest.New(b, state.New)
	fill := func(n int, put func(tx *store.Tx, i int) error) {
		for i := 0; i < n; i += batch {
			if _, err := tables.Store.Update(b.Context(), func(tx *store.Tx) error {
				for j := i; j < i+batch; j++ {
					if err := put(tx, j); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
		}
	}
	labels := func(i int) map[string]string {
		return map[string]string{"rack": fmt.Sprint(i % 40), "room": fmt.Sprint(i % 2), "arch": "amd64"}
	}
	fill(machines, func(tx *store.Tx, i int) error {
		mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", i>>16, i>>8&255, i&255)
		return tables.Machines.In(tx).Create(&trivet.Machine{
			Meta:   trivet.Meta{Name: fmt.Sprint("m", i), Labels: labels(i)},
			Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}},
			Status: trivet.MachineStatus{State: trivet.MachineAvailable}})
	})
	fill(waiting, func(tx *store.Tx, i int) error {
		return tables.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("p", i)},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: labels(i)}})
	})
	b.Run("machine for a provision", func(b *testing.B) {
		spec := &trivet.ProvisionSpec{Selector: labels(39)}
		for b.Loop() {
			if placement.First(tables.FreeMachines(spec.Selector, &state.Search{Left: machines}), spec, nil) == nil {
				b.Fatal("none was found")
			}
		}
	})
	b.Run("provision for a machine", func(b *testing.B) {
		m := &trivet.Machine{Meta: trivet.Meta{Name: "m", Labels: labels(39)}}
		for b.Loop() {
			found := false
			for range tables.WaitingFor(m) {
				found = true
				break
			}
			if !found {
				b.Fatal("none was found")
			}
		}
	})
}

// The events of 20,000 machines, 20 of each: what they use of a head's memory, with that of its member of the store,
// and of its disk.
func BenchmarkEventsInMemory(b *testing.B) {
	const machines, each, batch = 20_000, 20, 5
	m := storetest.MemberWith(b, cluster.Config{})
	tables := storetest.On(b, m, store.Options{}, state.New)
	used := func() uint64 {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		return now.HeapAlloc
	}
	before := used()
	for b.Loop() {
		for i := 0; i < machines; i += batch {
			if _, err := tables.Store.Update(b.Context(), func(tx *store.Tx) error {
				return putEvents(tx, tables, i, batch, each)
			}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := m.Compact(b.Context(), tables.Store.Revision()); err != nil {
		b.Fatal(err)
	}
	time.Sleep(5 * time.Second) // etcd compacts in the background
	b.ReportMetric(float64(used()-before)/1e6, "MB")
	b.ReportMetric(float64(used()-before)/machines/each, "B/event")
	b.ReportMetric(float64(m.Usage().Used)/machines/each, "disk-B/event")
}

// putEvents writes events of some machines as a run makes them.
func putEvents(tx *store.Tx, tables *state.Tables, first, machines int, each int64) (err error) {
	for i := first; i < first+machines; i++ {
		uid := fmt.Sprintf("UIDOFAMACHINE%013d", i)
		for next := range each {
			err = errors.Join(err, tables.Events.In(tx).Put(&trivet.Event{
				Meta: trivet.Meta{Name: trivet.EventName(uid, next)},
				Spec: trivet.EventSpec{Subject: fmt.Sprint("machine/m", i), SubjectUID: uid, Seq: next,
					Time: time.Now(), Reason: trivet.ReasonActionDone,
					Message: fmt.Sprint("partition: done in ", next, " s"),
					Step:    "partition", Workflow: fmt.Sprint("web-", i, "-1"), Epoch: 3, Head: "head1"},
			}))
		}
	}
	return err
}
