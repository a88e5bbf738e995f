package provision_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
)

func machine(name, rack string) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Name: name, UID: "uid-" + name}, Spec: trivet.MachineSpec{Rack: rack}}
}

func failed(on *trivet.Machine, fault trivet.FailureType) provision.Run {
	return provision.Run{Machine: on, Name: "p-" + on.Name, State: trivet.WorkflowFailed,
		Failure: &trivet.Failure{Type: fault, Step: "image", Cause: "disk is gone"}}
}

// The failures of a provision that may use two machines.
func TestFailover(t *testing.T) {
	spec := &trivet.ProvisionSpec{Selector: map[string]string{"a": "b"}}
	st := trivet.ProvisionStatus{State: trivet.ProvisionRunning, Machine: "m1", MachineUID: "uid-m1", Workflow: "p-m1"}
	st = provision.After(spec, st, failed(machine("m1", "r1"), trivet.FaultMachine))
	want := trivet.ProvisionStatus{State: trivet.ProvisionPending, Workflow: "p-m1",
		Reason: "image failed on m1 (machine): disk is gone",
		Spent: []trivet.SpentMachine{{FormerMachine: trivet.FormerMachine{Machine: "m1", MachineUID: "uid-m1"},
			Rack: "r1", Workflow: "p-m1", Failure: trivet.Failure{Type: trivet.FaultMachine, Step: "image", Cause: "disk is gone"}}}}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Errorf("after the first failure (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		name, rack       string
		spent, elsewhere bool
	}{{"m1", "r1", true, false}, {"m2", "r1", false, false}, {"m3", "r2", false, true}} {
		m := machine(c.name, c.rack)
		if spent, elsewhere := provision.Spent(&st, m), provision.Elsewhere(&st, m); spent != c.spent ||
			elsewhere != c.elsewhere {
			t.Errorf("%s: spent %v, elsewhere %v, want %v, %v", c.name, spent, elsewhere, c.spent, c.elsewhere)
		}
	}
	st.State, st.Machine, st.MachineUID, st.Workflow = trivet.ProvisionRunning, "m3", "uid-m3", "p-m3"
	st = provision.After(spec, st, failed(machine("m3", "r2"), trivet.FaultMachine))
	if st.State != trivet.ProvisionFailed || len(st.Spent) != 2 || st.Failure == nil || st.Machine != "m3" ||
		!strings.HasPrefix(st.Reason, "image failed on m3 (machine): disk is gone; before, image failed on m1: 2 machines") {
		t.Errorf("after the second failure: %+v", st)
	}
}

// Only faults of the machine spend another machine; a machine that is named has no alternative.
func TestNoFailover(t *testing.T) {
	none, selector := 0, map[string]string{"a": "b"}
	for name, c := range map[string]struct {
		spec trivet.ProvisionSpec
		run  provision.Run
		want string
	}{
		"image": {trivet.ProvisionSpec{Selector: selector}, failed(machine("m1", ""), trivet.FaultImage),
			"image failed on m1 (image): disk is gone"},
		"configuration": {trivet.ProvisionSpec{Selector: selector},
			failed(machine("m1", ""), trivet.FaultConfiguration), "image failed on m1 (configuration): disk is gone"},
		"named": {trivet.ProvisionSpec{Machine: "m1"}, failed(machine("m1", ""), trivet.FaultMachine),
			"image failed on m1 (machine): disk is gone"},
		"none allowed": {trivet.ProvisionSpec{Selector: selector, Alternatives: &none},
			failed(machine("m1", ""), trivet.FaultMachine), "image failed on m1 (machine): disk is gone"},
		"cancelled": {trivet.ProvisionSpec{Selector: selector},
			provision.Run{Machine: machine("m1", ""), State: trivet.WorkflowCancelled}, "cancelled"},
	} {
		if st := provision.After(&c.spec, trivet.ProvisionStatus{}, c.run); st.State != trivet.ProvisionFailed ||
			st.Reason != c.want {
			t.Errorf("%s: %s, %q, want %q", name, st.State, st.Reason, c.want)
		}
	}
}

// Where the network or platform of a machine is at fault, its provision goes on with a machine that has another one.
// The machine is not spent, and keeps its address.
func TestElsewhere(t *testing.T) {
	spec := &trivet.ProvisionSpec{Selector: map[string]string{"a": "b"}}
	st := trivet.ProvisionStatus{State: trivet.ProvisionRunning, Machine: "m1", MachineUID: "uid-m1", Workflow: "p-m1",
		Address: "10.0.0.1"}
	run := failed(machine("m1", "r1"), trivet.FaultNetwork)
	run.Elsewhere, run.Address = true, "10.0.0.1"
	after := provision.After(spec, st, run)
	want := trivet.ProvisionStatus{State: trivet.ProvisionPending, Workflow: "p-m1", Withdrawn: 1, Failure: run.Failure,
		Reason: "image failed on m1 (network): disk is gone"}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if after = provision.After(spec, after, run); after.State != trivet.ProvisionFailed || after.Failure != run.Failure {
		t.Errorf("without a further alternative: %+v", after)
	}
	run.Elsewhere = false
	if after = provision.After(spec, st, run); after.State != trivet.ProvisionFailed || after.Withdrawn != 0 {
		t.Errorf("without another machine: %+v", after)
	}
}

// Whatever its runs do, a provision uses at most 1 + alternatives machines, and none that is spent, and ends.
func TestEveryPathEnds(t *testing.T) {
	faults := []trivet.FailureType{"", trivet.FaultMachine, trivet.FaultMachine, trivet.FaultImage, trivet.FaultPlatform,
		trivet.FaultNetwork, trivet.FaultConfiguration, trivet.FaultControlPlane}
	rapid.Check(t, func(t *rapid.T) {
		spec := &trivet.ProvisionSpec{Selector: map[string]string{"a": "b"}}
		if n := rapid.IntRange(-1, trivet.MaxAlternatives).Draw(t, "alternatives"); n >= 0 {
			spec.Alternatives = &n
		}
		st, runs := trivet.ProvisionStatus{}, 0
		for !st.State.Ended() {
			m := machine(fmt.Sprint("m", rapid.IntRange(0, 20).Draw(t, "machine")), "")
			if provision.Spent(&st, m) {
				continue // it cannot be claimed
			}
			if runs++; runs > 1+provision.Alternatives(spec) {
				t.Fatalf("%d machines are used: %+v", runs, st)
			}
			run := provision.Run{Machine: m, Name: "p", State: trivet.WorkflowSucceeded}
			if fault := rapid.SampledFrom(faults).Draw(t, "fault"); fault != "" {
				run = failed(m, fault)
				run.Elsewhere = rapid.Bool().Draw(t, "elsewhere") && fault != trivet.FaultMachine
			} else if rapid.Bool().Draw(t, "cancelled") {
				run.State = trivet.WorkflowCancelled
			}
			before := len(st.Spent) + st.Withdrawn
			st = provision.After(spec, st, run)
			if st.State.Waits() && (len(st.Spent)+st.Withdrawn != before+1 || st.Machine != "") {
				t.Fatalf("it waits for another machine: %+v", st)
			}
		}
	})
}
