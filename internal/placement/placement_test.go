package placement_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/placement"
)

func machine(name string, state trivet.MachineState, rack string) *trivet.Machine {
	return &trivet.Machine{
		Meta:   trivet.Meta{Name: name, Labels: map[string]string{"rack": rack}},
		Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: "52:54:00:00:00:01"}}},
		Status: trivet.MachineStatus{State: state},
	}
}

type choice struct{ Machine, Why string }

func TestChoice(t *testing.T) {
	held := machine("a0", trivet.MachineAvailable, "r1")
	held.Spec.Cordoned = true
	machines := []*trivet.Machine{
		machine("a", trivet.MachineAvailable, "r1"), held, machine("b", trivet.MachineAvailable, "r1"),
		machine("c", trivet.MachineActive, "r2"), machine("d", trivet.MachineDiscovered, "r2"),
	}
	avoid := func(names string) func(*trivet.Machine) string {
		return func(m *trivet.Machine) string {
			if strings.Contains(names, m.Name) {
				return "broken"
			}
			return ""
		}
	}
	r1, r2 := map[string]string{"rack": "r1"}, map[string]string{"rack": "r2"}
	for name, c := range map[string]struct {
		spec  trivet.ProvisionSpec
		avoid func(*trivet.Machine) string
		want  choice
	}{
		"the first":          {trivet.ProvisionSpec{Selector: r1}, nil, choice{Machine: "a"}},
		"not an avoided one": {trivet.ProvisionSpec{Selector: r1}, avoid("a"), choice{Machine: "b"}},
		"all are avoided": {trivet.ProvisionSpec{Selector: r1}, avoid("a b"),
			choice{Why: "no machine is free: 2 broken, 1 cordoned"}},
		"the named one": {trivet.ProvisionSpec{Machine: "b"}, nil, choice{Machine: "b"}},
		"none is free": {trivet.ProvisionSpec{Selector: r2}, nil,
			choice{Why: "no machine is free: 1 active, 1 discovered but not accepted"}},
		"the named one is cordoned": {trivet.ProvisionSpec{Machine: "a0"}, nil,
			choice{Why: "no machine is free: 1 cordoned"}},
		"no such machine": {trivet.ProvisionSpec{Machine: "z"}, nil, choice{Why: "there is no machine z"}},
		"no such labels": {trivet.ProvisionSpec{Selector: map[string]string{"x": "y", "a": "b"}}, nil,
			choice{Why: "no machine has the labels a=b,x=y"}},
	} {
		got := choice{}
		if m := placement.First(slices.Values(machines), &c.spec, c.avoid); m != nil {
			got.Machine = m.Name
		} else {
			got.Why = placement.Why(slices.Values(machines), &c.spec, c.avoid)
		}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// The reason is stored in the record: it is written again where much has changed, not for each machine, and costs the
// same whatever the number of machines.
func TestWhyInRoundNumbers(t *testing.T) {
	spec := &trivet.ProvisionSpec{Selector: map[string]string{"rack": "r1"}}
	for n, want := range map[int]string{
		10:    "no machine is free: 10 active, 1 quarantined",
		11:    "no machine is free: over 10 active, 1 quarantined",
		100:   "no machine is free: over 10 active, 1 quarantined",
		101:   "no machine is free: over 100 active, 1 quarantined",
		5_000: "no machine is free: over 100 active, 1 quarantined, and others",
	} {
		read := 0
		got := placement.Why(func(yield func(*trivet.Machine) bool) {
			state := trivet.MachineQuarantined
			for range n + 1 {
				read++
				if !yield(machine("m", state, "r1")) {
					return
				}
				state = trivet.MachineActive
			}
		}, spec, nil)
		if got != want || read > 257 {
			t.Errorf("%d machines: %q after %d of them, want %q", n, got, read, want)
		}
	}
}
