package placement_test

import (
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

func TestPick(t *testing.T) {
	held := machine("a0", trivet.MachineAvailable, "r1")
	held.Spec.Cordoned = true
	machines := []*trivet.Machine{
		machine("b", trivet.MachineAvailable, "r1"), machine("a", trivet.MachineAvailable, "r1"), held,
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
		want  placement.Choice
	}{
		"the first by name":  {trivet.ProvisionSpec{Selector: r1}, nil, placement.Choice{Machine: "a"}},
		"not an avoided one": {trivet.ProvisionSpec{Selector: r1}, avoid("a"), placement.Choice{Machine: "b"}},
		"all are avoided": {trivet.ProvisionSpec{Selector: r1}, avoid("a b"),
			placement.Choice{Why: "no machine is free: 2 broken, 1 cordoned"}},
		"the named one": {trivet.ProvisionSpec{Machine: "b"}, nil, placement.Choice{Machine: "b"}},
		"none is free": {trivet.ProvisionSpec{Selector: r2}, nil,
			placement.Choice{Why: "no machine is free: 1 active, 1 discovered but not accepted"}},
		"the named one is cordoned": {trivet.ProvisionSpec{Machine: "a0"}, nil,
			placement.Choice{Why: "no machine is free: 1 cordoned"}},
		"no such machine": {trivet.ProvisionSpec{Machine: "z"}, nil, placement.Choice{Why: "there is no machine z"}},
		"no such labels": {trivet.ProvisionSpec{Selector: map[string]string{"x": "y", "a": "b"}}, nil,
			placement.Choice{Why: "no machine has the labels a=b,x=y"}},
	} {
		if got := placement.Pick(machines, &c.spec, c.avoid); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
