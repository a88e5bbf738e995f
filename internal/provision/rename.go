package provision

import "github.com/trivet-project/trivet"

// MoveMachine moves what a provision refers to by the name of a machine with a UID, which gets another name. It reports
// whether the provision refers to it. A request that names the machine, and has used it, names it by the new name.
func MoveMachine(p *trivet.Provision, uid, from, to string) bool {
	st := &p.Status
	if last := Last(st); last != nil && last.MachineUID == uid && st.WaitsFor == PowerOf(from) {
		st.WaitsFor = PowerOf(to)
	}
	moved := false
	move := func(name *string, of string) {
		if of == uid && *name == from {
			*name, moved = to, true
		}
	}
	move(&st.Machine, st.MachineUID)
	if st.Race != nil {
		move(&st.Race.Machine, st.Race.MachineUID)
	}
	if st.Replaced != nil {
		move(&st.Replaced.Machine, st.Replaced.MachineUID)
	}
	for i := range st.Spent {
		move(&st.Spent[i].Machine, st.Spent[i].MachineUID)
	}
	if moved && p.Spec.Machine == from {
		p.Spec.Machine = to
	}
	return moved
}
