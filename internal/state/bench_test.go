package state_test

import (
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
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
			if placement.First(tables.FreeMachines(spec.Selector), spec, nil) == nil {
				b.Fatal("none was found")
			}
		}
	})
	b.Run("provision for a machine", func(b *testing.B) {
		m := &trivet.Machine{Meta: trivet.Meta{Name: "m", Labels: labels(39)}}
		for b.Loop() {
			if tables.NextWaiting(m, nil) == nil {
				b.Fatal("none was found")
			}
		}
	})
}
