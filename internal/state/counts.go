package state

import (
	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// CountMachines returns the number of machines by state. It reads no machine.
func (t *Tables) CountMachines() map[string]int { return t.counts.machines.Counts() }

// CountProvisions returns the number of provisions by state. It reads no provision.
func (t *Tables) CountProvisions() map[string]int { return t.counts.provisions.Counts() }

// OldestPending returns the shared provision that waits for a machine for longest; nil where none does.
func (t *Tables) OldestPending() *trivet.Provision {
	return first(t.Provisions.Under(ByAge, "", store.Position{}))
}
