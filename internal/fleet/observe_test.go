package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// change changes the machine's record.
func (s *subject) change(do func(*trivet.Machine)) {
	s.Helper()
	s.write(func(tx *store.Tx) error { return s.changeMachine(tx, s.name, do) })
}

// at has all heads run a release.
func (r *rack) at(release trivet.Release) *rack {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: release}})
	})
	return r
}

// observe records what the BMC of the machine reports, and returns the status and whether the record has changed.
func (s *subject) observe(power string, cause error) (trivet.MachineStatus, bool) {
	s.Helper()
	before := s.get()
	s.must(s.ObservePower(s.Context(), before, power, cause))
	m := s.get()
	return m.Status, m.Revision != before.Revision
}

// powerEvents are the events of the machine about its power, a line each, those that are warnings with a mark.
func (s *subject) powerEvents() (lines []string) {
	for _, e := range s.events(trivet.EventPrefix("machine/"+s.name, s.get().UID)) {
		if e.Spec.Reason != trivet.ReasonPowerChanged {
			continue
		}
		line := e.Spec.Message
		if e.Spec.Warning {
			line = "! " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// What a BMC reports is recorded, and nothing is written where the record has that. An error keeps the state that was
// known last, until the BMC is read again, and neither changes what becomes of the machine.
func TestObservePower(t *testing.T) {
	r := newRack(t).at(trivet.CurrentRelease)
	m := r.newMachine(1)
	r.must(m.do("accept"))
	refused := func(n int) error { return fmt.Errorf("port %d: %w", n, trivet.ErrUnavailable) }
	for i, c := range []struct {
		power   string
		cause   error
		written bool
		want    string
	}{
		{"on", nil, true, "on"},
		{"on", nil, false, "on"},
		{"changing", nil, false, "on"},
		{"", refused(1), true, "on, BMC 10.0.0.9: port 1: unavailable"},
		{"", refused(2), false, "on, BMC 10.0.0.9: port 1: unavailable"}, // a number is no news
		{"", errors.New(strings.Repeat("ü", 600)), true, "on, BMC 10.0.0.9: " + strings.Repeat("ü", 256)},
		{"changing", nil, true, "on"},
		{"", refused(3), true, "on, BMC 10.0.0.9: port 3: unavailable"},
		{"off", nil, true, "off"},
	} {
		state := m.get().Status.State
		st, written := m.observe(c.power, c.cause)
		got := st.Power
		if st.PowerError != nil {
			got += ", " + st.PowerError.Cause
		}
		if got != c.want || written != c.written || st.State != state || st.Reputation != nil {
			t.Errorf("%d: it is %q, written: %t, state %s; want %q, %t, %s", i, got, written, st.State, c.want, c.written,
				state)
		}
	}
}

// An error is recorded with when it began, also where its text changes. That of another BMC is another one.
func TestPowerErrorSince(t *testing.T) {
	r := newRack(t).at(trivet.CurrentRelease)
	m := r.newMachine(1)
	first, _ := m.observe("", trivet.ErrUnavailable)
	second, _ := m.observe("", trivet.ErrUnauthenticated)
	if first.PowerError.Since.IsZero() || !second.PowerError.Since.Equal(first.PowerError.Since) {
		t.Errorf("since %s, and then since %s", first.PowerError.Since, second.PowerError.Since)
	}
	m.change(func(m *trivet.Machine) { m.Spec.BMC.Address = "10.0.8.2" })
	if st, written := m.observe("", trivet.ErrUnauthenticated); !written ||
		!strings.HasPrefix(st.PowerError.Cause, "BMC 10.0.8.2: ") {
		t.Errorf("of another BMC: %+v, written: %t", st.PowerError, written)
	}
	m.change(func(m *trivet.Machine) { m.Spec.BMC = nil })
	if st, _ := m.observe("", nil); st.PowerError != nil {
		t.Errorf("without a BMC: %+v", st.PowerError)
	}
}

// A record that has changed since the BMC was read stays as it is: a command may have been carried out. So does one
// that has a power request.
func TestObservedTooLate(t *testing.T) {
	r := newRack(t).at(trivet.CurrentRelease)
	m := r.newMachine(1)
	r.must(m.do("accept"))
	read := m.get()
	m.change(func(m *trivet.Machine) { m.Status.Power = "off" })
	r.must(r.ObservePower(t.Context(), read, "on", nil))
	r.must(r.ObservePower(t.Context(), read, "", trivet.ErrUnavailable))
	r.must(r.Power(t.Context(), m.name, trivet.PowerRequest{Want: "on"}))
	if st, written := m.observe("on", nil); written || st.Power != "off" || st.PowerError != nil || st.Intent == nil {
		t.Errorf("written: %t: %+v", written, st)
	}
	m.change(func(m *trivet.Machine) { m.Status.PowerError = &trivet.PowerError{Cause: "broken"} })
	held, err := r.AcquireIntent(t.Context(), m.name, *m.get().Status.Intent, 0)
	r.must(err)
	r.must(r.RecordPower(t.Context(), m.name, held, "on"))
	if st := m.get().Status; st.Power != "on" || st.PowerError != nil {
		t.Errorf("after a command: %s, %+v", st.Power, st.PowerError)
	}
	m.change(func(m *trivet.Machine) { m.Status.PowerError = &trivet.PowerError{Cause: "broken"} })
	r.must(m.recover())
	if st := m.get().Status; st.Power != "" || st.PowerError != nil {
		t.Errorf("after a recovery: %q, %+v", st.Power, st.PowerError)
	}
}

// Each change that nothing of Trivet's explains is one event, a warning where a machine in use is off. The first state
// that is known is none.
func TestPowerChangedEvents(t *testing.T) {
	r := newRack(t).at(trivet.CurrentRelease)
	m := r.newMachine(1)
	r.must(m.do("accept"))
	for _, power := range []string{"off", "off", "on", "on", "off", "on"} {
		m.observe(power, nil)
	}
	m.change(func(m *trivet.Machine) { m.Status.State = trivet.MachineActive })
	for _, power := range []string{"on", "off", "off", "on"} {
		m.observe(power, nil)
	}
	const on = "the BMC reports the machine on; it was off, and no power request has changed that"
	const off = "the BMC reports the machine off; it was on, and no power request has changed that"
	got, want := strings.Join(m.powerEvents(), "\n"), strings.Join([]string{on, off, on, "! " + off, on}, "\n")
	if got != want {
		t.Errorf("the events are\n%s\nwant\n%s", got, want)
	}
}

// Until all heads know the field for errors, only the state is recorded.
func TestPowerErrorNeedsRelease(t *testing.T) {
	r := newRack(t).at("0.3")
	m := r.newMachine(1)
	if st, written := m.observe("", trivet.ErrUnavailable); written || st.PowerError != nil {
		t.Errorf("written: %t, %+v", written, st.PowerError)
	}
	if st, _ := m.observe("off", nil); st.Power != "off" {
		t.Errorf("it is %q", st.Power)
	}
}
