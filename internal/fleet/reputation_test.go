package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// known is a book with many runs that succeeded on machines whose model is unknown, in which each step took a minute.
func known(r *rack, steps ...string) *learnt.Book {
	b := &learnt.Book{}
	for range 200 {
		run := learnt.Run{Model: learnt.ModelOf(nil), Succeeded: true}
		for _, step := range steps {
			run.Steps = append(run.Steps, learnt.Took{Keys: []string{step}, Time: 50 * time.Second})
		}
		b.Add(run)
	}
	r.Learnt = func() *learnt.Book { return b }
	return b
}

// A run has how long its steps took before, and each attempt that takes longer than almost all is reported once. It
// goes on, and its deadline is as before.
func TestLateStep(t *testing.T) {
	r := newRack(t)
	known(r, trivet.StepDHCP, "default/t/work")
	c := newCounter(r)
	r.provision("p")
	w, err := r.Workflows.Get("default/p-1")
	r.must(err)
	if len(w.Spec.Times) != 2 || w.Spec.Times[0].Step != trivet.StepDHCP || w.Spec.Times[1].Step != "work" {
		t.Fatalf("times: %+v", w.Spec.Times)
	}
	if late := workflow.LateAfter(w); late < 50*time.Second || late > time.Minute {
		t.Errorf("it is late after %s", late)
	}
	wait, limit, _ := workflow.CurrentWait(w)
	r.must(r.ReportLate(t.Context(), "m1", wait))
	r.must(r.ReportLate(t.Context(), "m1", wait)) // by another head
	if got := r.reasons(); got != "Claimed StepLate" {
		t.Errorf("events: %s", got)
	}
	c.check("a late step", map[string]float64{"steps_late_total dhcp": 1})
	w, err = r.Workflows.Get("default/p-1")
	r.must(err)
	if same, again, _ := workflow.CurrentWait(w); same != wait || again != limit || w.Status.State != trivet.WorkflowBooting {
		t.Errorf("it waits for %+v within %s, before for %+v within %s", same, again, wait, limit)
	}
	r.must(r.ReachBootStep(t.Context(), "m1", trivet.StepKernel, 0))
	r.must(r.ReportLate(t.Context(), "m1", wait)) // of what is over
	if got := r.reasons(); strings.Count(got, "StepLate") != 1 {
		t.Errorf("events: %s", got)
	}
}

// The site says after which time a step may be late at all.
func TestLateAfterOfTheSite(t *testing.T) {
	r := newRack(t)
	known(r, trivet.StepDHCP)
	r.write(func(tx *store.Tx) error {
		site := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}}
		site.Status.ClusterVersion = trivet.CurrentRelease
		return r.Sites.In(tx).Put(site)
	})
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		site.Spec.LateAfter = trivet.Duration(7 * time.Minute)
		return r.Sites.In(tx).Put(site)
	})
	r.provision("p")
	w, err := r.Workflows.Get("default/p-1")
	r.must(err)
	if got := workflow.LateAfter(w); got != 7*time.Minute {
		t.Errorf("it is late after %s", got)
	}
}

// pick returns the machine that a new provision of the pool gets.
func (r *rack) pick(name string) string {
	r.Helper()
	r.provisionOf(name, trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "p"}})
	return r.provisionNamed(name).Status.Machine
}

// failedBefore gives machines of the pool a reputation.
func (r *rack) failedBefore(f trivet.FailureType, machines ...string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		for _, name := range machines {
			m, err := r.Machines.In(tx).Get(name)
			if err != nil {
				return err
			}
			m.Status.Reputation = learnt.AddFailure(m.Status.Reputation, f, time.Now())
			if err := r.Machines.In(tx).Put(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// A fault of the machine lowers its reputation, and placement prefers others, until an operator resets it. Faults of
// what machines share do not.
func TestReputationLowersPlacement(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.provisionOf("a", trivet.ProvisionSpec{Template: "t", Machine: "p1"})
	m, _ := r.failRunAt("a", trivet.StepPowerOn)
	if got := m.Status.Reputation; got == nil || got.Failures[trivet.FaultMachine] != 1 {
		t.Fatalf("after a fault of the machine: %+v", got)
	}
	r.acceptReleased("p1")
	r.failedBefore(trivet.FaultImage, "p2")
	r.failedBefore(trivet.FaultMachine, "p3", "p3")
	if got := r.pick("b"); got != "p2" {
		t.Errorf("%s is claimed, want p2: its image was at fault", got)
	}
	r.must(r.Forget(t.Context(), "p1"))
	r.must(r.Forget(t.Context(), "p1"))
	m, err := r.Machines.Get("p1")
	r.must(err)
	reasons := ""
	for _, e := range r.events(trivet.EventPrefix("machine/p1", m.UID)) {
		reasons += " " + e.Spec.Reason
	}
	if m.Status.Reputation != nil || strings.Count(reasons, trivet.ReasonForgotten) != 1 {
		t.Errorf("the reputation after a reset: %+v; events%s", m.Status.Reputation, reasons)
	}
	if got := r.pick("c"); got != "p1" {
		t.Errorf("%s is claimed, want p1", got)
	}
}

// Where no machine is good, the best one is used. Of those that a provision may use after a failure, one in another
// rack is preferred to one of a better reputation.
func TestBestOfBadMachines(t *testing.T) {
	r := newRack(t)
	r.pool()
	for i := 1; i <= 9; i++ {
		r.failedBefore(trivet.FaultMachine, fmt.Sprint("p", i))
	}
	r.failedBefore(trivet.FaultMachine, "p1", "p2", "p4", "p5", "p6", "p7", "p8", "p9")
	if got := r.pick("a"); got != "p3" {
		t.Errorf("%s is claimed, want p3, which has failed once", got)
	}
	r.inRacks("r1 r1 r1 r2 r2 r2 r2 r2 r2")
	r.failedBefore(trivet.FaultMachine, "p4", "p5", "p7", "p8", "p9")
	r.failRunAt("a", trivet.StepPowerOn)
	r.must(r.Claim(t.Context(), "default/a"))
	if got := r.provisionNamed("a").Status.Machine; got != "p6" {
		t.Errorf("after the failure %s is claimed, want p6: in another rack, and the best one there", got)
	}
}

// Machines of a model that fails clearly more often than others are used where there are no others.
func TestModelLowersPlacement(t *testing.T) {
	r := newRack(t)
	r.pool()
	b := known(r)
	for range 5 {
		b.Add(learnt.Run{Model: "Bad", Failure: trivet.FaultMachine})
	}
	r.write(func(tx *store.Tx) error {
		for _, name := range []string{"p1", "p2"} {
			m, err := r.Machines.In(tx).Get(name)
			if err != nil {
				return err
			}
			m.Status.Inventory = &trivet.Inventory{Vendor: "Bad"}
			if err := r.Machines.In(tx).Put(m); err != nil {
				return err
			}
		}
		return nil
	})
	if got := r.pick("a"); got != "p3" {
		t.Errorf("%s is claimed, want p3", got)
	}
	if models := r.Models(); len(models) != 3 || models[1].Name != "Bad" || !models[1].Avoided || models[2].Avoided {
		t.Errorf("models: %+v", models)
	}
}
