package fleet_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The site whose memory is measured.
const (
	memoryMachines = 200
	memoryRuns     = 10 // ended runs of each
)

// A head's memory for a machine does not grow with the former runs that it has. Each of them costs what one transaction
// writes. The test does not run beside others, whose memory it would measure.
func TestMemoryOfFormerRuns(t *testing.T) {
	m := storetest.Member(t)
	r := rackOn(t, fleet.New(storetest.On(t, m, store.Options{Head: "filler"}, state.New), "filler"))
	r.install("#cloud-config\n")
	sample, err := r.Workflows.Get("default/p-1")
	r.must(err)
	empty := copyBytes(t, m)
	for i := range memoryMachines {
		r.fill(fmt.Sprintf("filled%04d", i), sample)
	}
	all := copyBytes(t, m) - empty
	before := r.Store.Revision()
	for i := range memoryMachines {
		r.write(func(tx *store.Tx) error {
			for run := range memoryRuns - 1 {
				if err := r.Workflows.In(tx).Retire(fmt.Sprintf("default/filled%04d-%d", i, run+1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	last := copyBytes(t, m) - empty
	wrote, _ := written(t, m.Client(), before, r.Store.Revision())
	t.Logf("a machine with an inventory and %d ended runs uses %d bytes of the copy where all are in it, and %d where "+
		"the last one is; a move writes %d bytes", memoryRuns, all/memoryMachines, last/memoryMachines,
		wrote/memoryMachines/(memoryRuns-1))
	if last*4 > all {
		t.Errorf("the copy uses %d bytes with the last run of each machine, and %d with %d of each", last, all,
			memoryRuns)
	}
}

// fill writes a machine with runs that are copies of one.
func (r *rack) fill(name string, sample *trivet.Workflow) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		own := inventory()
		machine := &trivet.Machine{Meta: trivet.Meta{Name: name}, Status: trivet.MachineStatus{Inventory: &own,
			State: trivet.MachineAvailable, Workflow: fmt.Sprintf("%s-%d", name, memoryRuns)}}
		if err := r.Machines.In(tx).Create(machine); err != nil {
			return err
		}
		for run := range memoryRuns {
			w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: fmt.Sprintf("%s-%d", name, run+1)},
				Spec: sample.Spec, Status: sample.Status}
			w.Spec.Machine, w.Spec.MachineUID, w.Spec.Provision = name, machine.UID, name
			if err := r.Workflows.In(tx).Create(w); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyBytes returns the memory that the copy of another head uses: the median of several measurements, as the member in
// this process takes and frees memory meanwhile.
func copyBytes(t *testing.T, m *cluster.Member) int {
	t.Helper()
	used := make([]int, 11)
	for i := range used {
		t.Run("copy", func(t *testing.T) {
			before := heapBytes()
			tables := storetest.On(t, m, store.Options{Head: "measured"}, state.New)
			used[i] = heapBytes() - before
			runtime.KeepAlive(tables)
		})
	}
	slices.Sort(used)
	return used[len(used)/2]
}

func heapBytes() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
