package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// on brings a new machine to a state by commands.
func (r *rack) on(commands string) *subject {
	r.Helper()
	m := r.newMachine(1)
	for _, command := range strings.Fields(commands) {
		if err := m.do(command); err != nil {
			r.Fatalf("%s of %s: %v", command, commands, err)
		}
	}
	return m
}

// want fails unless the machine has a state.
func (s *subject) want(state string) {
	s.Helper()
	if got := s.releaseState(); got != state {
		s.Errorf("the machine is %s, want %s: %s", got, state, s.get().Status.Reason)
	}
}

// Before all heads have this release, machines are released as ever: without a run, and no command does it otherwise.
func TestReleaseNeedsAllHeads(t *testing.T) {
	r := newRack(t)
	r.write(func(tx *store.Tx) error {
		return r.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: "0.3"}})
	})
	m := r.on(installed)
	if err := m.do("wipe"); !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "0.3.1") {
		t.Errorf("%v", err)
	}
	m.want("active")
	r.must(m.do("delete"))
	m.want("releasing")
	r.must(m.do("off"))
	m.want("available")
}

// What becomes of the disks when a provision is deleted is the site's choice. A machine that the provision's agent
// never worked on is available at once.
func TestDeletedProvisionByTheSitesChoice(t *testing.T) {
	for mode, want := range map[trivet.ReleaseMode][3]string{
		"":                     {"available", "available", "releasing"},
		trivet.ReleaseNoWipe:   {"available", "available", "releasing"},
		trivet.ReleaseWipe:     {"available", "releasing:booting", "releasing:booting"},
		trivet.ReleaseKeepData: {"available", "releasing:stopping+data", "releasing:stopping+data"},
	} {
		for i, path := range []string{"accept claim", "accept claim boot", installed} {
			r := newRack(t)
			r.releasing(mode)
			m := r.on(path)
			before := m.get().Status
			r.must(m.do("delete"))
			m.want(want[i])
			if st := m.get().Status; st.Provision != "" || st.Epoch <= before.Epoch || st.AgentKey != "" {
				t.Errorf("%s, %s: %+v", mode, path, st)
			}
			if w, err := r.Workflows.Get("default/" + before.Workflow); err != nil || !w.Status.State.Ended() {
				t.Errorf("%s, %s: the former run: %+v, %v", mode, path, w, err)
			}
		}
	}
}

// A machine whose disks hold data is claimed by a provision that names it, and by none that selects it.
func TestKeptDataIsNotOverwrittenBySelector(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on(installed + "keep-data off")
	if st := m.get().Status; st.HoldsData != "provision p1" || st.Power != "off" || st.Reason != "" {
		t.Errorf("%+v", st)
	}
	r.must(m.claim())
	p, err := r.Provisions.Get("default/p1")
	r.must(err)
	if p.Status.State != trivet.ProvisionPending || !strings.Contains(p.Status.Reason, "holding data that is kept") {
		t.Errorf("a provision by selector: %+v", p.Status)
	}
	r.write(func(tx *store.Tx) error { // it keeps waiting, also when the machine is offered
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "named"},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: m.name}})
	})
	r.must(r.Offer(t.Context(), m.name))
	m.want("claimed+data")
	if st := m.get().Status; st.Provision != "named" {
		t.Errorf("it is claimed by %q", st.Provision)
	}
	r.must(m.do("boot"))
	m.want("provisioning")
}

// The caller releases what it has seen: a machine that serves another provision meanwhile is left alone.
func TestReleaseComparesTheProvision(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on(installed)
	for _, provision := range []string{"", "other"} {
		err := r.StartRelease(t.Context(), m.name, trivet.ReleaseRequest{Provision: provision})
		if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "serves provision p1") {
			t.Errorf("%q: %v", provision, err)
		}
	}
	m.want("active")
	r.must(r.StartRelease(t.Context(), m.name, trivet.ReleaseRequest{Provision: "p1"}))
	if _, err := r.Provisions.Get("default/p1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("the provision: %v", err)
	}
	epoch := m.get().Status.Epoch
	r.must(r.StartRelease(t.Context(), m.name, trivet.ReleaseRequest{})) // again
	if m.get().Status.Epoch != epoch {
		t.Error("a repeated request begins another run")
	}
}

// Without a BMC a person boots the machine, the agent powers it off, and then no agent is in it.
func TestReleaseWithoutBMC(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	r.AgentUp = func(string, int64) bool { return true }
	r.must(r.StartRelease(t.Context(), "m1", trivet.ReleaseRequest{}))
	m := r.machine()
	if !strings.Contains(m.Status.Reason, "power the machine on by hand") || m.Status.Intent != nil {
		t.Errorf("%+v", m.Status)
	}
	r.must(r.hello("k1", m.Status.Epoch))
	epoch := r.machine().Status.Epoch
	r.must(r.report(epoch, "k1", trivet.Report{Seq: 1, Action: "wipe", State: trivet.StepDone},
		trivet.Report{Seq: 2, Action: "verify", State: trivet.StepDone},
		trivet.Report{Seq: 3, Action: "poweroff", State: trivet.StepDone}))
	m = r.machine()
	if m.Status.State != trivet.MachineAvailable || m.Status.Power != "off" || m.Status.Epoch != epoch {
		t.Errorf("%+v", m.Status)
	}
	if g := workflow.Acked(m, r.RunOf(m)); g != 3 {
		t.Errorf("%d reports are acknowledged, want 3", g)
	}
	r.provision("p") // the agent that was up is off
	if m = r.machine(); m.Status.State != trivet.MachineClaimed {
		t.Errorf("the next run is granted to an agent that is off: %+v", m.Status)
	}
}

// An agent that waits in the machine needs no boot.
func TestReleaseByAnIdleAgent(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	r.must(r.hello("k1", 0))
	r.AgentUp = func(string, int64) bool { return true }
	r.must(r.StartRelease(t.Context(), "m1", trivet.ReleaseRequest{}))
	m := r.machine()
	run := r.GrantedRun(m)
	if m.Status.State != trivet.MachineReleasing || m.Status.AgentKey != "k1" || run == nil ||
		run.Spec.Release != trivet.ReleaseWipe {
		t.Errorf("%+v, %+v", m.Status, run)
	}
}

// A release that fails is evidence, and the machine is powered off. Its failures at the boot count against what
// machines share only where its BMC has booted it.
func TestReleaseThatFails(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on(installed + "wipe boot broken")
	st := m.get().Status
	w := r.RunOf(m.get())
	if !strings.HasPrefix(st.Reason, "its release failed at wipe of "+w.Name+": input/output error") ||
		st.Intent == nil || st.Intent.Want != "off" || st.Intent.Boot != "network" || st.Inventory == nil {
		t.Errorf("%+v", st)
	}
	if f := w.Status.Failure; f == nil || f.Type != trivet.FaultMachine {
		t.Errorf("the failure of the run: %+v", f)
	}
	r.must(m.do("wipe")) // again, by command
	m.want("q:releasing:booting")
	if !strings.HasPrefix(m.get().Status.Reason, "its release failed") {
		t.Errorf("the reason of the quarantine is lost: %s", m.get().Status.Reason)
	}
}

// A run of a machine's former life has its number: the next release is another run.
func TestReleasesHaveNamesOfTheirOwn(t *testing.T) {
	r := newRack(t)
	r.releasing("")
	m := r.on(installed)
	names := map[string]bool{}
	for range 3 {
		r.must(m.do("no-wipe"))
		names[m.get().Status.Workflow] = true
		r.must(m.do("off"))
	}
	if len(names) != 3 {
		t.Errorf("3 releases were the runs %v", names)
	}
}
