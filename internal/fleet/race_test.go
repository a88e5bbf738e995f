package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// newRace returns a rack in which p1 and p2 race for provision a, after a change.
func newRace(t *testing.T, change func(r *rack, tx *store.Tx) error) *rack {
	t.Helper()
	r := newRack(t)
	r.pool()
	r.upgraded(trivet.CurrentRelease)
	r.write(func(tx *store.Tx) error { return change(r, tx) })
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"},
		Race: trivet.RaceMachines})
	r.must(r.Claim(t.Context(), "default/a"))
	return r
}

// boots lets the agent of a machine register, and do all actions; it has not phoned home.
func (r *rack) boots(machine string) {
	r.Helper()
	m := r.machineNamed(machine)
	r.bmcReports(machine, "off")
	r.bmcReports(machine, "on")
	_, err := r.Hello(r.Context(), &trivet.Hello{MAC: m.Spec.NICs[0].MAC, Key: "k", BootID: "b"},
		auth.BootToken{Machine: machine, MAC: m.Spec.NICs[0].MAC, Epoch: m.Status.Epoch})
	r.must(err)
	r.must(r.acts(machine, r.machineNamed(machine).Status.Epoch))
}

func (r *rack) acts(machine string, epoch int64) error {
	return r.Report(r.Context(), &trivet.Sync{Machine: machine, Epoch: epoch, BootID: "b", Reports: []trivet.Report{
		{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
		{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}}})
}

func (r *rack) phonesHome(machine string, epoch int64) error {
	w, err := r.Workflows.Get(trivet.Resolve("", r.machineNamed(machine).Status.Workflow))
	r.must(err)
	return r.PhoneHome(r.Context(), auth.BootToken{Machine: machine, Epoch: epoch, Run: w.UID}, nil)
}

// Two machines install a provision. The first that is up serves it; the other one is stopped, its agent refused, and
// its machine released.
func TestRace(t *testing.T) {
	for _, first := range []string{"p1", "p2"} {
		r := newRace(t, unchanged)
		p := r.provisionNamed("a")
		if p.Status.Machine != "p1" || p.Status.Race == nil || p.Status.Race.Machine != "p2" || p.Status.Attempts != 2 ||
			p.Status.Race.Address != "10.0.0.2" {
			t.Fatalf("the provision: %+v", p.Status)
		}
		other := map[string]string{"p1": "p2", "p2": "p1"}[first]
		r.boots(first)
		epoch := r.machineNamed(other).Status.Epoch
		r.must(r.phonesHome(first, r.machineNamed(first).Status.Epoch))
		p = r.provisionNamed("a")
		if p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != first || p.Status.Race != nil ||
			p.Status.RaceNote != first+" was first; "+other+" was stopped" ||
			p.Status.Address != "10.0.0."+strings.TrimPrefix(first, "p") {
			t.Errorf("%s is up: %+v", first, p.Status)
		}
		w, err := r.Workflows.Get(trivet.Resolve("", r.machineNamed(other).Status.Workflow))
		if m := r.machineNamed(other); err != nil || w.Status.State != trivet.WorkflowCancelled ||
			m.Status.State != trivet.MachineAvailable || m.Status.Provision != "" || m.Status.Epoch <= epoch ||
			m.Status.Reputation != nil {
			t.Errorf("the loser: %+v, its run: %+v, %v", m.Status, w.Status, err)
		}
		if err := r.acts(other, epoch); err == nil {
			t.Error("an agent that lost goes on")
		}
		if won, lost := r.message(first, trivet.ReasonRaceWon), r.message(other, trivet.ReasonRaceLost); won !=
			"it serves provision a: it was first, before "+other || lost != "provision a: machine "+first+" was first" {
			t.Errorf("events: %q, %q", won, lost)
		}
	}
}

// A machine that had left the installer when it lost is powered off before it is available.
func TestLoserThatHasBooted(t *testing.T) {
	r := newRace(t, unchanged)
	r.boots("p1")
	r.boots("p2")
	epoch := r.machineNamed("p2").Status.Epoch
	r.must(r.phonesHome("p1", r.machineNamed("p1").Status.Epoch))
	m := r.machineNamed("p2")
	if m.Status.State != trivet.MachineReleasing || m.Status.Intent == nil || m.Status.Intent.Want != "off" {
		t.Errorf("the loser: %+v", m.Status)
	}
	if err := r.phonesHome("p2", epoch); err == nil {
		t.Error("a system that lost phoned home")
	}
	if p := r.provisionNamed("a"); p.Status.Machine != "p1" {
		t.Errorf("the provision: %+v", p.Status)
	}
	r.bmcReports("p2", "off")
	if m := r.machineNamed("p2"); m.Status.State != trivet.MachineAvailable {
		t.Errorf("the loser, which is off: %+v", m.Status)
	}
}

// Where one of the two fails, or is taken away by an operator, the other one goes on alone.
func TestRaceGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(r *rack)
		goes  string
		spent bool
	}{
		"the first fails":           {func(r *rack) { r.must(r.of("p1").expire()) }, "p2", true},
		"the second fails":          {func(r *rack) { r.must(r.of("p2").expire()) }, "p1", true},
		"the first is quarantined":  {func(r *rack) { r.must(r.Quarantine(r.Context(), "p1", "noise")) }, "p2", false},
		"the second is quarantined": {func(r *rack) { r.must(r.Quarantine(r.Context(), "p2", "noise")) }, "p1", false},
		"the second is released": {func(r *rack) {
			r.must(r.StartRelease(r.Context(), "p2", trivet.ReleaseRequest{Provision: "a"}))
		}, "p1", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRace(t, unchanged)
			c.end(r)
			p := r.provisionNamed("a")
			if p.Status.State != trivet.ProvisionRunning || p.Status.Machine != c.goes || p.Status.Race != nil ||
				(len(p.Status.Spent) == 1) != c.spent || !strings.HasSuffix(p.Status.RaceNote, c.goes+" goes on alone") {
				t.Fatalf("the provision: %+v", p.Status)
			}
			r.must(r.Claim(t.Context(), "default/a"))
			if p := r.provisionNamed("a"); p.Status.Race != nil {
				t.Errorf("a third machine: %+v", p.Status)
			}
			r.boots(c.goes)
			r.must(r.phonesHome(c.goes, r.machineNamed(c.goes).Status.Epoch))
			if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != c.goes {
				t.Errorf("in the end: %+v", p.Status)
			}
		})
	}
}

// of returns a machine of the pool as a subject.
func (r *rack) of(name string) *subject { return &subject{rack: r, name: name, provision: "a"} }

// With the deletion of its provision, or the release of its first machine, both machines are released.
func TestReleaseOfARace(t *testing.T) {
	for name, release := range map[string]func(r *rack){
		"deletion": func(r *rack) { r.release("a") },
		"release": func(r *rack) {
			r.must(r.StartRelease(r.Context(), "p1", trivet.ReleaseRequest{Mode: trivet.ReleaseNoWipe, Provision: "a"}))
		},
	} {
		r := newRace(t, unchanged)
		release(r)
		for _, machine := range []string{"p1", "p2"} {
			if m := r.machineNamed(machine); m.Status.Provision != "" || m.Status.State == trivet.MachineClaimed {
				t.Errorf("%s: %s: %+v", name, machine, m.Status)
			}
		}
		if _, err := r.Provisions.Get("default/a"); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pause pauses both runs, and a resume changes nothing else.
func TestPauseOfARace(t *testing.T) {
	r := newRace(t, unchanged)
	r.must(r.Pause(t.Context(), "default/a", "op"))
	for _, run := range []string{"a-1", "a-2"} {
		if w := r.run(run); w.Status.Paused == nil {
			t.Errorf("%s is not paused", run)
		}
	}
	r.must(r.Resume(t.Context(), "default/a", "op"))
	for _, run := range []string{"a-1", "a-2"} {
		if w := r.run(run); w.Status.Paused != nil {
			t.Errorf("%s is paused", run)
		}
	}
	if p := r.provisionNamed("a"); p.Status.Race == nil || p.Status.RaceNote != "" {
		t.Errorf("the provision: %+v", p.Status)
	}
}

// There is no race where the budget is used up or is 0, where no machine is free, and where others wait for those that
// are: the provision goes on with one, and says why.
func TestNoRace(t *testing.T) {
	budget := func(percent int) func(r *rack, tx *store.Tx) error {
		return func(r *rack, tx *store.Tx) error {
			site, err := r.Sites.In(tx).Get(trivet.SiteName)
			if err != nil {
				return err
			}
			site.Spec.RaceBudget = &percent
			return r.Sites.In(tx).Put(site)
		}
	}
	for name, c := range map[string]struct {
		before func(r *rack, tx *store.Tx) error
		want   string
	}{
		"budget 0": {budget(0), "no race: 0 of 0 machines race that spec.raceBudget of the site allows"},
		"used up": {func(r *rack, tx *store.Tx) error {
			return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "other"},
				Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"x": "y"}, Race: trivet.RaceMachines},
				Status: trivet.ProvisionStatus{State: trivet.ProvisionRunning, Race: &trivet.RaceRun{Machine: "p9",
					Workflow: "other-2"}}})
		}, "no race: 1 of 1 machines race that spec.raceBudget of the site allows"},
		"no machine is free": {func(r *rack, tx *store.Tx) error {
			for _, name := range []string{"p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"} {
				if err := r.changeMachine(tx, name, func(m *trivet.Machine) { m.Spec.Cordoned = true }); err != nil {
					return err
				}
			}
			return nil
		}, "no race: no machine is free: 1 claimed, 8 cordoned"},
		"others wait": {func(r *rack, tx *store.Tx) error {
			return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "waits"},
				Spec:   trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}},
				Status: trivet.ProvisionStatus{State: trivet.ProvisionPending}})
		}, "no race: other provisions wait for the machines that are free"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRack(t)
			r.pool()
			r.upgraded(trivet.CurrentRelease)
			r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"},
				Race: trivet.RaceMachines})
			r.write(func(tx *store.Tx) error { return c.before(r, tx) })
			r.must(r.Claim(t.Context(), "default/a"))
			if p := r.provisionNamed("a"); p.Status.Race != nil || p.Status.RaceNote != c.want {
				t.Fatalf("the provision: %+v", p.Status)
			}
			r.installOn("p1")
			if p := r.provisionNamed("a"); p.Status.State != trivet.ProvisionSucceeded {
				t.Errorf("in the end: %+v", p.Status)
			}
		})
	}
}

// Of two heads that decide at the same time, the second one finds the race of the first in the budget.
func TestRaceBudgetIsCompared(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.upgraded(trivet.CurrentRelease)
	for _, name := range []string{"a", "b"} {
		r.provisionOf(name, trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"},
			Race: trivet.RaceMachines})
	}
	runs := 0
	_, err := r.Store.Update(t.Context(), func(tx *store.Tx) error {
		runs++
		n := r.Provisions.In(tx).CountBy(state.ByRace, state.Racing)
		if runs == 1 { // the other head
			r.must(r.Claim(t.Context(), "default/a"))
		} else if n != 1 {
			t.Errorf("%d machines race", n)
		}
		p, err := r.Provisions.In(tx).Get("default/b")
		if err != nil {
			return err
		}
		p.Status.RaceNote = "decided"
		return r.Provisions.In(tx).Put(p)
	})
	if err != nil || runs != 2 {
		t.Errorf("%d runs, %v", runs, err)
	}
}

// Before all heads have the release there is no race.
func TestNoRaceBeforeTheRelease(t *testing.T) {
	r := newRack(t)
	r.pool()
	_, err := r.Store.Update(t.Context(), func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "a"},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}, Race: trivet.RaceMachines}})
	})
	if !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("%v", err)
	}
}

// After a recovery the provision goes on with one machine.
func TestRaceAfterRecovery(t *testing.T) {
	for _, decision := range []string{trivet.ResolveContinue, trivet.ResolveCancel} {
		r := newRace(t, unchanged)
		r.must(errors.Join(r.of("p1").recover(), r.of("p2").recover()))
		r.must(r.decide("default/a", decision))
		p := r.provisionNamed("a")
		if p.Status.Race != nil || p.Status.State == trivet.ProvisionFrozen {
			t.Errorf("%s: %+v", decision, p.Status)
		}
		if m := r.machineNamed("p2"); m.Status.Provision != "" || m.Status.State != trivet.MachineUnverified {
			t.Errorf("%s: the second machine: %+v", decision, m.Status)
		}
	}
}
