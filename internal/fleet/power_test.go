package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// powerOutcomes has what a machine of each state boots from after an operator's request, or - where it is refused.
const powerOutcomes = `
             on       off      cycle    on!      off!     cycle!
discovered   network  network  network  network  network  network
available    network  network  network  network  network  network
claimed      -        -        -        network  network  network
provisioning -        -        -        network  network  network
starting     -        -        -        disk     disk     disk
active       disk     disk     disk     disk     disk     disk
releasing    -        disk     -        -        disk     -
q:discovered network  network  network  network  network  network
q:available  network  network  network  network  network  network
q:failed     network  network  network  network  network  network
q:active     disk     disk     disk     disk     disk     disk
q:releasing  -        disk     -        -        disk     -
unverified   disk     disk     disk     disk     disk     disk
q:unverified disk     disk     disk     disk     disk     disk
frozen       -        -        -        disk     disk     disk
frozen-run   -        -        -        disk     disk     disk
frozen-start -        -        -        disk     disk     disk
`

// A run is disturbed only by force, and what a released machine ran is not started again even then.
func TestPowerInEveryState(t *testing.T) {
	inEveryState(t, powerOutcomes, func(m *subject, _, request string) string { return m.requestPower(request) })
}

// requestPower requests a state, "on!" by force, and returns what the machine boots from then.
func (s *subject) requestPower(request string) string {
	s.Helper()
	want, before := strings.TrimSuffix(request, "!"), s.get()
	err := s.Power(s.Context(), s.name, trivet.PowerRequest{Want: want, Force: want != request})
	m := s.get()
	if m.Status.State != before.Status.State || m.Status.Epoch != before.Status.Epoch {
		s.Errorf("power %s: the machine was %s and is %s", request, before.Status.State, m.Status.State)
	}
	if err != nil {
		if !errors.Is(err, trivet.ErrConflict) || m.Revision != before.Revision {
			s.Errorf("power %s: %v, and the record changed: %t", request, err, m.Revision != before.Revision)
		}
		return "-"
	}
	if m.Status.Intent == nil || m.Status.Intent.Want != want {
		s.Fatalf("power %s: the intent is %+v", request, m.Status.Intent)
	}
	return m.Status.Intent.Boot
}

// The request and its outcome are events. A machine that was available is so afterwards: it ran nothing.
func TestPowerEvents(t *testing.T) {
	r := newRack(t)
	m := r.newMachine(1)
	r.must(m.do("accept"))
	for _, want := range []string{"on", "cycle", "off"} {
		r.must(r.Power(t.Context(), m.name, trivet.PowerRequest{Want: want}))
		for m.get().Status.Intent != nil {
			held, err := r.AcquireIntent(t.Context(), m.name, *m.get().Status.Intent, 0)
			r.must(err)
			reported := "on"
			if held.Want == "off" || held.Want == "cycle" && !held.Off {
				reported = "off"
			}
			r.must(r.RecordPower(t.Context(), m.name, held, reported))
		}
	}
	var reasons []string
	for _, e := range r.events(trivet.EventPrefix("machine/"+m.name, m.get().UID)) {
		reasons = append(reasons, e.Spec.Reason)
	}
	const want = "Accepted PowerRequested PoweredOn PowerRequested PoweredOn PowerRequested PoweredOff"
	if got := strings.Join(reasons, " "); got != want {
		t.Errorf("the events are %s; want %s", got, want)
	}
	if st := m.get().Status; st.State != trivet.MachineAvailable || st.Power != "off" {
		t.Errorf("the machine is %s, its power %s", st.State, st.Power)
	}
}

// A former system that may still run is powered off, and the machine is available then.
func TestPowerOffOfAReleasingMachine(t *testing.T) {
	r := newRack(t)
	m := r.newMachine(1)
	for _, step := range strings.Fields("accept claim boot report phone-home delete") {
		r.must(m.do(step))
	}
	r.must(r.DropIntent(t.Context(), m.name, *m.get().Status.Intent, errors.New("no answer")))
	if st := m.get().Status; st.Intent != nil || workflow.StateOf(&st) != trivet.MachineReleasing {
		t.Fatalf("%+v", st)
	}
	r.must(r.Power(t.Context(), m.name, trivet.PowerRequest{Want: "off"}))
	r.must(m.powerOff(m.get()))
	m.check("power off")
	if state := m.state(); state != "available" {
		t.Errorf("the machine is %s", state)
	}
}

func TestPowerWithoutBMC(t *testing.T) {
	r := newRack(t)
	err := r.Power(t.Context(), "m1", trivet.PowerRequest{Want: "on", Force: true})
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "spec.bmc") {
		t.Errorf("%v", err)
	}
	if err := r.Power(t.Context(), "none", trivet.PowerRequest{Want: "on"}); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// A run whose machine was powered off by force goes on: the deadline of its step powers the machine on again.
func TestForcedPowerOffOfARun(t *testing.T) {
	r := newRack(t)
	m := r.newMachine(1)
	r.must(m.do("accept"))
	r.must(m.do("claim"))
	r.must(r.Power(t.Context(), m.name, trivet.PowerRequest{Want: "off", Force: true}))
	r.must(m.powerOff(m.get()))
	if st := m.get().Status; st.Intent != nil || st.State != trivet.MachineClaimed {
		t.Fatalf("%+v", st)
	}
	w, err := r.Workflows.Get(trivet.Resolve("", m.get().Status.Workflow))
	r.must(err)
	wait, _, ok := workflow.CurrentWait(w)
	if !ok {
		t.Fatalf("the run waits for nothing: %+v", w.Status)
	}
	r.must(r.Expire(t.Context(), m.name, wait))
	if st := m.get().Status; st.Intent == nil || st.Intent.Want != "cycle" || st.Intent.Boot != "network" {
		t.Errorf("after the deadline: %+v", st)
	}
}
