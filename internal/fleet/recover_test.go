package fleet_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// recover changes the records as a recovery of the cluster does.
func (s *subject) recover() error {
	_, err := s.Store.Update(s.Context(), func(tx *store.Tx) error {
		m, err := s.Machines.In(tx).Get(s.name)
		if err != nil {
			return err
		}
		w, err := s.Workflows.In(tx).Get(trivet.Resolve("", m.Status.Workflow))
		if err != nil {
			w = nil
		}
		workflow.Recover(&m.Status, w, time.Now())
		if w != nil {
			err = s.Workflows.In(tx).Put(w)
		}
		p, failed := s.Provisions.In(tx).Get("default/" + s.provision)
		if failed == nil {
			workflow.RecoverProvision(&p.Status)
			failed = s.Provisions.In(tx).Put(p)
		}
		if errors.Is(failed, trivet.ErrNotFound) {
			failed = nil
		}
		if w == nil {
			err = nil
		}
		return errors.Join(err, failed, s.Machines.In(tx).Put(m))
	})
	return err
}

func (r *rack) decide(provision, decision string) error {
	return r.Resolve(r.Context(), provision, trivet.ResolveRequest{Decision: decision}, "alice")
}

func (r *rack) do(m *subject, commands string) {
	r.Helper()
	for _, command := range strings.Fields(commands) {
		if err := m.do(command); err != nil {
			r.Fatalf("%s: %v", command, err)
		}
	}
}

// No deadline, silence or boot of a frozen run has an effect: neither its machine nor its provision is touched until
// the operator decides.
func TestNothingHappensToAFrozenRun(t *testing.T) {
	r := newRack(t)
	for n, path := range []string{"accept claim", "accept claim boot", "accept claim boot report"} {
		m := r.newMachine(n + 1)
		r.do(m, path+" recover")
		before := m.get()
		w, err := r.Workflows.Get(trivet.Resolve("", before.Status.Workflow))
		r.must(err)
		if _, _, ok := workflow.CurrentWait(w); ok {
			t.Errorf("%s: the run has a deadline", path)
		}
		if _, ok := workflow.AwaitedAgent(w); ok {
			t.Errorf("%s: the run awaits an agent", path)
		}
		for _, step := range []string{trivet.StepDHCP, trivet.StepScript, trivet.StepKernel} {
			r.must(r.ReachBootStep(t.Context(), m.name, step, before.Status.Epoch))
		}
		if after := m.get(); after.Revision != before.Revision {
			t.Errorf("%s: the machine was changed: %+v", path, after.Status)
		}
		if workflow.WantedPower(&before.Status, w) != "" || before.Status.Intent != nil {
			t.Errorf("%s: the machine is to be powered", path)
		}
	}
}

// A machine is continued by a power cycle, except where its agent is idle, which gets the run at its next sync.
func TestContinueAFrozenRun(t *testing.T) {
	r := newRack(t)
	m := r.newMachine(1)
	r.do(m, "accept claim boot recover continue")
	if in := m.get().Status.Intent; in == nil || in.Want != "cycle" || in.Boot != "network" {
		t.Errorf("the intent is %+v", in)
	}
	r.AgentUp = func(string, int64) bool { return true } // as a head that has just started has it
	unknown := r.newMachine(3)
	r.do(unknown, "accept claim boot recover continue")
	if in := unknown.get().Status.Intent; in == nil || in.Want != "cycle" {
		t.Errorf("the intent of a machine whose agent this head never heard is %+v", in)
	}
	r.AgentHeard = r.AgentUp
	idle := r.newMachine(2)
	r.do(idle, "accept claim boot recover continue")
	st := idle.get().Status
	if st.Intent != nil {
		t.Errorf("the machine of an idle agent is to be powered: %+v", st.Intent)
	}
	w, err := r.Workflows.Get(trivet.Resolve("", st.Workflow))
	r.must(err)
	write, err := workflow.DecideSync(idle.get(), w, &trivet.Sync{Machine: idle.name, BootID: st.BootID})
	if write != workflow.WriteGrant || err != nil {
		t.Errorf("its sync writes %v, %v", write, err)
	}
}

// An unverified machine becomes available by an agent that has been idle in the same boot; not by one at work, or of
// another boot, and not while a power request is pending.
func TestIdleAgentVerifies(t *testing.T) {
	r := newRack(t)
	m := r.newMachine(1)
	r.do(m, "accept boot recover")
	st := m.get().Status
	for _, c := range []struct {
		sync trivet.Sync
		want workflow.SyncWrite
	}{
		{trivet.Sync{BootID: st.BootID}, workflow.WriteIdle},
		{trivet.Sync{BootID: "another"}, workflow.WriteNothing},
		{trivet.Sync{BootID: st.BootID, Epoch: 3}, workflow.WriteNothing},
	} {
		if got, err := workflow.DecideSync(m.get(), nil, &c.sync); got != c.want || err != nil {
			t.Errorf("%+v writes %v, %v, want %v", c.sync, got, err, c.want)
		}
	}
	r.must(r.Power(t.Context(), m.name, trivet.PowerRequest{Want: "cycle"}))
	r.must(r.Verify(t.Context(), m.name, "test"))
	held, err := r.AcquireIntent(t.Context(), m.name, *m.get().Status.Intent, 0)
	r.must(err)
	r.must(r.RecordPower(t.Context(), m.name, held, "off"))
	if m.state() != "unverified" {
		t.Errorf("during a power cycle it is %s", m.state())
	}
	r.must(r.RecordPower(t.Context(), m.name, *m.get().Status.Intent, "on"))
	r.must(r.Verify(t.Context(), m.name, "test"))
	if m.state() != "available" {
		t.Errorf("it is %s", m.state())
	}
}

// What waits for a machine is frozen, too, and is decided without one.
func TestResolveWithoutMachine(t *testing.T) {
	r := newRack(t)
	for decision, want := range map[string]trivet.ProvisionState{"continue": trivet.ProvisionPending,
		"cancel": trivet.ProvisionFailed} {
		r.write(func(tx *store.Tx) error {
			p := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: decision},
				Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": "none"}}}
			workflow.RecoverProvision(&p.Status)
			return r.Provisions.In(tx).Create(p)
		})
		r.must(r.Claim(t.Context(), "default/"+decision)) // it does not wait
		r.must(r.decide("default/"+decision, decision))
		if p, err := r.Provisions.Get("default/" + decision); err != nil || p.Status.State != want {
			t.Errorf("%s: %+v, %v", decision, p.Status, err)
		}
		if err := r.decide("default/"+decision, decision); !errors.Is(err, trivet.ErrConflict) {
			t.Errorf("resolved again: %v", err)
		}
	}
}
