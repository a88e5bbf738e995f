package provision_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
)

func racing() trivet.ProvisionStatus {
	return trivet.ProvisionStatus{State: trivet.ProvisionRunning, Machine: "m1", MachineUID: "uid-m1", Workflow: "p-m1",
		Address: "10.0.0.1", Attempts: 2,
		Race: &trivet.RaceRun{Machine: "m2", MachineUID: "uid-m2", Workflow: "p-m2", Address: "10.0.0.2"}}
}

// Whichever run ends first, the provision is served by the one that succeeds, and the other one is stopped.
func TestAfterRace(t *testing.T) {
	m1, m2 := machine("m1", "r1"), machine("m2", "r2")
	won := func(m *trivet.Machine) provision.Run {
		return provision.Run{Machine: m, Name: "p-" + m.Name, State: trivet.WorkflowSucceeded}
	}
	cancelled := provision.Run{Machine: m1, Name: "p-m1", State: trivet.WorkflowCancelled}
	for name, c := range map[string]struct {
		run            provision.Run
		machine, note  string
		state          trivet.ProvisionState
		stopped, spent string
	}{
		"the first succeeds":  {won(m1), "m1", "m1 was first; m2 was stopped", trivet.ProvisionSucceeded, "m2", ""},
		"the second succeeds": {won(m2), "m2", "m2 was first; m1 was stopped", trivet.ProvisionSucceeded, "m1", ""},
		"the first is broken": {failed(m1, trivet.FaultMachine), "m2",
			"image failed on m1 (machine): disk is gone; m2 goes on alone", trivet.ProvisionRunning, "", "m1"},
		"the second is broken": {failed(m2, trivet.FaultMachine), "m1",
			"image failed on m2 (machine): disk is gone; m1 goes on alone", trivet.ProvisionRunning, "", "m2"},
		"the image is bad": {failed(m2, trivet.FaultImage), "m1",
			"image failed on m2 (image): disk is gone; m1 goes on alone", trivet.ProvisionRunning, "", ""},
		"the first is cancelled": {cancelled, "m2", "the run on m1 was cancelled; m2 goes on alone",
			trivet.ProvisionRunning, "", ""},
	} {
		st, stop := provision.AfterRace(racing(), c.run)
		stopped, spent := "", ""
		if stop != nil {
			stopped = stop.Machine
		}
		if len(st.Spent) > 0 {
			spent = st.Spent[0].Machine
		}
		if st.State != c.state || st.Machine != c.machine || st.MachineUID != "uid-"+c.machine ||
			st.Workflow != "p-"+c.machine || st.RaceNote != c.note || st.Race != nil || stopped != c.stopped ||
			spent != c.spent {
			t.Errorf("%s: %+v; stopped %q", name, st, stopped)
		}
	}
}

func TestRaceBudget(t *testing.T) {
	percent := func(n int) *int { return &n }
	for _, c := range []struct {
		percent        *int
		machines, want int
	}{{nil, 0, 1}, {nil, 19, 1}, {nil, 100, 5}, {nil, 100_000, 5000}, {percent(0), 100, 0}, {percent(100), 7, 7}} {
		if got := provision.RaceBudget(&trivet.SiteSpec{RaceBudget: c.percent}, c.machines); got != c.want {
			t.Errorf("%d machines: %d, want %d", c.machines, got, c.want)
		}
	}
}

// A provision that races ends, however its runs end and in which order; it never has two machines afterwards, and uses
// no more machines than one that does not race with the same number of alternatives, or two.
func TestRaceEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alternatives := rapid.IntRange(0, 3).Draw(t, "alternatives")
		p := &trivet.Provision{Spec: trivet.ProvisionSpec{Race: trivet.RaceMachines, Alternatives: &alternatives,
			Selector: map[string]string{"a": "b"}}}
		st, used := &p.Status, 0
		claim := func() trivet.RaceRun {
			used++
			name := fmt.Sprint("m", used)
			return trivet.RaceRun{Machine: name, MachineUID: "uid-" + name, Workflow: "p-" + name}
		}
		for !st.State.Ended() {
			if used > 9 {
				t.Fatalf("%d machines were used: %+v", used, st)
			}
			if st.State.Waits() {
				*st = provision.ServedBy(*st, claim())
				st.State = trivet.ProvisionRunning
			}
			if provision.WantsSecond(p) {
				if rapid.Bool().Draw(t, "second") {
					second := claim()
					st.Race = &second
				} else {
					st.RaceNote = "no race"
				}
			}
			name := st.Machine
			if st.Race != nil && rapid.Bool().Draw(t, "the second ends") {
				name = st.Race.Machine
			}
			run := failed(machine(name, "r"), rapid.SampledFrom([]trivet.FailureType{trivet.FaultMachine,
				trivet.FaultImage, trivet.FaultConfiguration}).Draw(t, "fault"))
			switch rapid.IntRange(0, 2).Draw(t, "end") {
			case 0:
				run.State, run.Failure = trivet.WorkflowSucceeded, nil
			case 1:
				run.State, run.Failure = trivet.WorkflowCancelled, nil
			}
			if st.Race == nil {
				*st = provision.After(&p.Spec, *st, run)
				continue
			}
			other := st.Machine
			if other == name {
				other = st.Race.Machine
			}
			next, stop := provision.AfterRace(*st, run)
			succeeded := run.State == trivet.WorkflowSucceeded
			if next.Race != nil || (stop != nil) != succeeded || next.State.Ended() != succeeded ||
				stop != nil && stop.Machine != other || succeeded && next.Machine != name || !succeeded && next.Machine != other {
				t.Fatalf("after %s of %s: %+v, stopped %+v", run.State, name, next, stop)
			}
			*st = next
		}
		if used > max(1+alternatives, trivet.RaceMachines) {
			t.Fatalf("%d machines were used with %d alternatives: %+v", used, alternatives, st)
		}
	})
}

// A provision that left a machine which was not at fault has no second one: that would be a third.
func TestHedgeAfterWithdrawn(t *testing.T) {
	p := &trivet.Provision{Spec: trivet.ProvisionSpec{Hedge: true, Selector: map[string]string{"a": "b"}},
		Status: trivet.ProvisionStatus{State: trivet.ProvisionRunning, Machine: "m2", Workflow: "p-2"}}
	if !provision.MayHedge(p) {
		t.Error("the first machine may have one beside it")
	}
	if p.Status.Withdrawn = 1; provision.MayHedge(p) {
		t.Error("the second machine may have one beside it")
	}
}
