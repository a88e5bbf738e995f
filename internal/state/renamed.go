package state

import "github.com/trivet-project/trivet"

// MachinesOnce returns the shared machines that had a name before they were renamed.
func (t *Tables) MachinesOnce(name string) []*trivet.Machine {
	return t.Machines.SharedBy(ByFormerName, name)
}
