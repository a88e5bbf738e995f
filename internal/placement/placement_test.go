package placement_test

import (
	"slices"
	"strconv"
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

// The best machine is chosen, the first one of those that are equal; the search ends at one that no other is better
// than, and after a bounded number of others.
func TestPreferred(t *testing.T) {
	spec := &trivet.ProvisionSpec{Selector: map[string]string{"rack": "r1"}}
	many := strings.Repeat("3 ", 300) + "1"
	for _, tc := range []struct {
		worse string // of each machine
		want  int    // index; -1: none
		read  int
	}{
		{"0 0", 0, 1}, {"2 1 1 3", 1, 4}, {"2 0 0", 1, 2}, {"", -1, 0}, {many, 0, 256},
	} {
		by, read := strings.Fields(tc.worse), 0
		got := placement.Preferred(func(yield func(*trivet.Machine) bool) {
			for i := range by {
				m := machine(strconv.Itoa(i), trivet.MachineAvailable, "r1")
				if read++; !yield(m) {
					return
				}
			}
		}, spec, nil, func(m *trivet.Machine) float64 {
			i, _ := strconv.Atoi(m.Name)
			worse, _ := strconv.ParseFloat(by[i], 64)
			return worse
		})
		index := -1
		if got != nil {
			index, _ = strconv.Atoi(got.Name)
		}
		if index != tc.want || read != tc.read {
			t.Errorf("%.20s: machine %d of %d, want %d of %d", tc.worse, index, read, tc.want, tc.read)
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
