package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// upgraded makes the site one whose heads all have a release.
func (r *rack) upgraded(release trivet.Release) *rack {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: release}})
	})
	return r
}

// agentOf registers an agent of a release on machine m1.
func (r *rack) agentOf(key string, release trivet.Release) {
	r.Helper()
	_, err := r.Hello(r.Context(), &trivet.Hello{MAC: mac, Key: key, BootID: "boot-" + key, Release: release},
		auth.BootToken{Machine: "m1", MAC: mac, Epoch: r.machine().Status.Epoch})
	r.must(err)
}

func (r *rack) run(name string) *trivet.Workflow {
	r.Helper()
	w, err := r.Workflows.Get("default/" + name)
	r.must(err)
	return w
}

// withBMC gives machine m1 a BMC.
func (r *rack) withBMC() {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Spec.BMC = &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}
		return r.Machines.In(tx).Put(m)
	})
}

// A provision that is paused claims no machine, and younger ones go before it until it is resumed.
func TestPausedProvisionKeepsItsPlace(t *testing.T) {
	r := newAgedRack(t).upgraded(trivet.CurrentRelease)
	selector := map[string]string{"rack": "r1"}
	for _, name := range []string{"a", "b", "c"} {
		r.waits(name, trivet.ProvisionSpec{Selector: selector})
	}
	r.must(r.Pause(t.Context(), "default/a", "alice"))
	if place, ok := r.QueuePlace(r.provisionNamed("a")); !ok || place.Position != 1 || place.Of != 3 {
		t.Errorf("the place of what is paused: %+v", place)
	}
	machine := r.free(1, selector)
	r.must(r.Claim(t.Context(), "default/a"))
	r.must(r.Offer(t.Context(), machine))
	if p := r.provisionNamed("a"); p.Status.Machine != "" || p.Status.Paused == nil || p.Status.Paused.By != "alice" {
		t.Errorf("what is paused: %+v", p.Status)
	}
	if p := r.provisionNamed("b"); p.Status.Machine != machine {
		t.Errorf("the next one: %+v", p.Status)
	}
	r.must(r.Resume(t.Context(), "default/a", "alice"))
	other := r.free(2, selector)
	r.must(r.Offer(t.Context(), other))
	if p := r.provisionNamed("a"); p.Status.Machine != other || p.Status.Paused != nil {
		t.Errorf("after it was resumed: %+v", p.Status)
	}
	if p := r.provisionNamed("c"); p.Status.Machine != "" {
		t.Errorf("a younger one: %+v", p.Status)
	}
}

// The run of a paused provision has no deadline, and its agent learns of the pause.
func TestPausedRun(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.provision("p")
	r.agentOf("k1", trivet.CurrentRelease)
	r.must(r.Pause(t.Context(), "default/p", "alice"))
	w, m := r.run("p-1"), r.machine()
	if !workflow.IsPaused(m, w) || w.Status.Paused.By != "alice" {
		t.Errorf("the run: %+v", w.Status)
	}
	wait, _, _ := workflow.CurrentWait(w)
	before := r.Store.Revision()
	r.must(r.Expire(t.Context(), "m1", wait))
	r.must(r.DeclareLost(t.Context(), "m1", wait, m.Status.Epoch, "silent"))
	r.must(r.Pause(t.Context(), "default/p", "bob")) // it is alice's
	if r.Store.Revision() != before {
		t.Errorf("a deadline changed a run that is paused: %+v", r.run("p-1").Status)
	}
	r.must(r.report(m.Status.Epoch, "k1", trivet.Report{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone}))
	if s := r.run("p-1").Status.Current(); s != nil {
		t.Errorf("%s is running", s.Name)
	}
	r.must(r.Resume(t.Context(), "default/p", "bob"))
	w = r.run("p-1")
	if s := w.Status.Current(); s == nil || s.Name != "reboot" || workflow.IsPaused(r.machine(), w) {
		t.Errorf("after it was resumed: %+v", r.run("p-1").Status)
	}
	if got := r.reasons(); got != "Claimed Granted Paused ActionDone Resumed" {
		t.Errorf("events: %s", got)
	}
	r.must(r.report(m.Status.Epoch, "k1", trivet.Report{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}))
	r.must(r.phoneHome(m.Status.Epoch))
	if err := r.Pause(t.Context(), "default/p", "alice"); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "pause provision p: conflict: it has ended (succeeded)") {
		t.Errorf("to pause what has ended: %v", err)
	}
}

// While a run is paused nothing is sent to its BMC but what an operator requests; afterwards what it needs.
func TestPausedPower(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.withBMC()
	r.provision("p")
	r.must(r.Pause(t.Context(), "default/p", "alice"))
	if m := r.machine(); m.Status.Intent != nil {
		t.Errorf("the request %+v", m.Status.Intent)
	}
	r.must(r.Resume(t.Context(), "default/p", "alice"))
	if i := r.machine().Status.Intent; i == nil || i.Want != "cycle" || i.Boot != "network" {
		t.Errorf("after it was resumed: %+v", i)
	}
	r.must(r.Pause(t.Context(), "default/p", "alice"))
	r.must(r.Power(t.Context(), "m1", trivet.PowerRequest{Want: "on", Force: true}))
	if i := r.machine().Status.Intent; i == nil || i.Want != "on" {
		t.Errorf("the operator's request: %+v", i)
	}
	r.must(r.Resume(t.Context(), "default/p", "alice"))
	if i := r.machine().Status.Intent; i == nil || i.Want != "on" {
		t.Errorf("it was replaced by %+v", i)
	}
}

// An agent that comes up while its run is paused waits for it, and is granted it afterwards. It is up, so that its
// machine is not powered.
func TestAgentOfPausedRunWaits(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.withBMC()
	r.provision("p")
	r.must(r.Pause(t.Context(), "default/p", "alice"))
	r.agentOf("k1", "") // it needs to know no pauses
	m := r.machine()
	if r.GrantedRun(m) != nil || m.Status.State != trivet.MachineClaimed {
		t.Errorf("the run was granted while it was paused: %+v", m.Status)
	}
	r.must(r.GrantIdle(t.Context(), "m1", "k1"))
	if m := r.machine(); r.GrantedRun(m) != nil {
		t.Errorf("a sync granted the run while it was paused: %+v", m.Status)
	}
	r.must(r.Resume(t.Context(), "default/p", "alice"))
	if i := r.machine().Status.Intent; i != nil {
		t.Errorf("a machine whose agent is up gets %+v", i)
	}
	r.must(r.GrantIdle(t.Context(), "m1", "k1"))
	if m := r.machine(); r.GrantedRun(m) == nil || m.Status.State != trivet.MachineProvisioning {
		t.Errorf("after it was resumed: %+v", m.Status)
	}
}

// Where a head or the agent does not know pauses, nothing is paused.
func TestPauseNeedsItsRelease(t *testing.T) {
	r := newRack(t).upgraded("0.3")
	r.provision("p")
	if err := r.Pause(t.Context(), "default/p", "alice"); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "status.paused need release 0.3.1 on all heads") {
		t.Errorf("with an older head: %v", err)
	}
	r.agentOf("k1", trivet.CurrentRelease)
	if got := r.machine().Status.AgentRelease; got != "" {
		t.Errorf("while a head may leave it as it is, the agent's release is %q", got)
	}
	r.upgraded(trivet.CurrentRelease)
	if err := r.Pause(t.Context(), "default/p", "alice"); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "the agent on m1 has an earlier release than 0.3.1") {
		t.Errorf("with an older agent: %v", err)
	}
	if p := r.provisionNamed("p"); p.Status.Paused != nil {
		t.Errorf("it is paused: %+v", p.Status)
	}
	r.agentOf("k2", trivet.CurrentRelease)
	r.must(r.Pause(t.Context(), "default/p", "alice"))
	r.agentOf("k3", "0.3")
	if got := r.machine().Status.AgentRelease; got != "0.3" {
		t.Errorf("the release of an older agent is %q", got)
	}
}
