package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// outcomes is the state of a machine after every command in every state. "-" means that the command was refused or
// that there was nothing to do, "q:STATE" a quarantine with a former state. The commands are: trivet accept and
// quarantine, a provision by selector, the machine boots the installer, the provision is deleted, all attempts of
// the running step expire, the installed system phones home, the BMC reports that it powered the machine off, the
// cluster is recovered from these records, and the operator continues or cancels what that has frozen.
const outcomes = `
             accept      quarantine    claim    boot          delete       expire       phone-home  off          recover             continue      cancel
discovered   available   q:discovered  -        -             -            -            -           -            -                   -             -
available    -           q:available   claimed  -             -            -            -           -            unverified          -             -
claimed      -           q:available   -        provisioning  available    q:available  -           -            frozen:claimed      -             -
provisioning -           q:available   -        -             available    q:available  -           -            frozen:provisioning -             -
starting     -           q:releasing   -        -             releasing    releasing    active      -            frozen:provisioning -             -
active       -           q:active      -        -             releasing    -            -           -            -                   -             -
releasing    available   q:releasing   -        available     -            -            -           available    unverified          -             -
q:discovered available   -             -        -             -            -            -           -            -                   -             -
q:available  available   -             -        -             -            -            -           -            q:unverified        -             -
q:failed     available   -             -        -             -            -            -           -            q:unverified        -             -
q:active     active      -             -        -             q:releasing  -            -           -            -                   -             -
q:releasing  releasing   -             -        q:available   -            -            -           q:available  q:unverified        -             -
unverified   available   q:unverified  -        available     -            -            -           -            -                   -             -
q:unverified unverified  -             -        q:available   -            -            -           -            -                   -             -
frozen       -           q:unverified  -        -             unverified   -            -           -            -                   claimed       unverified
frozen-run   -           q:unverified  -        -             unverified   -            -           -            -                   provisioning  unverified
frozen-start -           q:unverified  -        -             unverified   -            active      -            -                   starting      unverified
`

// Each state is reached by the commands that lead to it.
type stateBy struct{ name, path string }

var states = []stateBy{
	{"discovered", ""}, {"available", "accept"}, {"claimed", "accept claim"}, {"provisioning", "accept claim boot"},
	{"starting", "accept claim boot report"}, {"active", "accept claim boot report phone-home"},
	{"releasing", "accept claim boot report phone-home delete"}, {"q:discovered", "quarantine"},
	{"q:available", "accept quarantine"}, {"q:failed", "accept claim expire"},
	{"q:active", "accept claim boot report phone-home quarantine"},
	{"q:releasing", "accept claim boot report phone-home quarantine delete"},
	{"unverified", "accept recover"}, {"q:unverified", "accept recover quarantine"}, {"frozen", "accept claim recover"},
	{"frozen-run", "accept claim boot recover"}, {"frozen-start", "accept claim boot report recover"},
}

func TestEveryCommandInEveryState(t *testing.T) {
	inEveryState(t, outcomes, func(m *subject, state, command string) string {
		before := m.state()
		err := m.do(command)
		after := m.state()
		if err != nil && after != before {
			t.Errorf("%s of a machine that was %s: %v, but it is %s", command, state, err, after)
		}
		m.check(state + ": " + command)
		if after == before {
			return "-"
		}
		return after
	})
}

// inEveryState does what is in the first line of a table to a machine of its own in every state, and compares the
// outcomes with the table.
func inEveryState(t *testing.T, table string, do func(m *subject, state, what string) string) {
	t.Helper()
	newRack(t).inStates(states, table, do)
}

// inStates is inEveryState for other states.
func (r *rack) inStates(states []stateBy, table string, do func(m *subject, state, what string) string) {
	r.Helper()
	columns := strings.Fields(strings.Split(table, "\n")[1])
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\t%s", strings.Join(columns, "\t"))
	number := 0
	for _, state := range states {
		fmt.Fprintf(w, "\n%s", state.name)
		for _, what := range columns {
			number++
			m := r.newMachine(number)
			for _, step := range strings.Fields(state.path) {
				if err := m.do(step); err != nil {
					r.Fatalf("%s: %s: %v", state.name, step, err)
				}
			}
			fmt.Fprint(w, "\t"+do(m, state.name, what))
		}
	}
	w.Flush()
	if strings.Join(strings.Fields(out.String()), " ") != strings.Join(strings.Fields(table), " ") {
		r.Errorf("got\n%s\nwant%s", out.String(), table)
	}
}

// subject is one machine under test. Its provision selects it by a label.
type subject struct {
	*rack
	name, mac, provision string
	runs                 bool // a system that a run installed may run on it, and the operator did not accept that
}

func (r *rack) newMachine(n int) *subject {
	s := &subject{rack: r, name: fmt.Sprint("s", n), mac: fmt.Sprintf("52:54:00:01:%02x:%02x", n>>8, n&255),
		provision: fmt.Sprint("p", n)}
	r.write(func(tx *store.Tx) error {
		return errors.Join(
			r.Machines.In(tx).Create(&trivet.Machine{
				Meta: trivet.Meta{Name: s.name, Labels: map[string]string{"n": s.name}},
				Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: s.mac}},
					BMC: &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}},
				Status: trivet.MachineStatus{State: trivet.MachineDiscovered},
			}),
			r.MACs.In(tx).Create(&trivet.MAC{Meta: trivet.Meta{Name: s.mac}, Spec: trivet.MACSpec{Machine: s.name}}),
		)
	})
	return s
}

func (s *subject) get() *trivet.Machine {
	s.Helper()
	m, err := s.Machines.Get(s.name)
	s.must(err)
	return m
}

func (s *subject) state() string {
	st := s.get().Status
	if st.State == trivet.MachineQuarantined {
		return "q:" + string(st.Former)
	}
	w, err := s.Workflows.Get(trivet.Resolve("", st.Workflow))
	if err == nil && w.Status.Frozen && !w.Status.State.Ended() {
		return "frozen:" + string(st.State)
	}
	if err == nil && w.Status.State == trivet.WorkflowStarting {
		return "starting"
	}
	return string(st.State)
}

func (s *subject) do(command string) error {
	ctx, m := s.Context(), s.get()
	switch command {
	case "accept":
		err := s.Accept(ctx, s.name)
		s.runs = s.runs && m.Status.State != trivet.MachineReleasing
		return err
	case "quarantine":
		return s.Quarantine(ctx, s.name, "noise")
	case "claim":
		return s.claim()
	case "boot":
		_, err := s.Hello(ctx, &trivet.Hello{MAC: s.mac, Key: "k", BootID: fmt.Sprint("b", m.Status.Epoch),
			Release: trivet.CurrentRelease},
			auth.BootToken{Machine: s.name, MAC: s.mac, Epoch: m.Status.Epoch})
		if state := workflow.StateOf(&m.Status); state == trivet.MachineReleasing ||
			state == trivet.MachineClaimed && err == nil {
			s.runs = false
		}
		return err
	case "report":
		s.runs = true
		return s.Report(ctx, &trivet.Sync{Machine: s.name, Epoch: m.Status.Epoch, BootID: m.Status.BootID,
			Reports: []trivet.Report{{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
				{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}}})
	case "delete":
		return s.deleteProvision()
	case "expire":
		return s.expire()
	case "phone-home":
		token := auth.BootToken{Machine: s.name, Epoch: m.Status.Epoch}
		if w, err := s.Workflows.Get(trivet.Resolve("", m.Status.Workflow)); err == nil {
			token.Run = w.UID
			if w.Status.Frozen { // the seed has not changed since
				token.Epoch = w.Status.SeedEpoch
			}
		}
		return s.PhoneHome(ctx, token, nil)
	case "off":
		return s.powerOff(m)
	case "recover":
		return s.recover()
	case "redeploy":
		return s.Redeploy(ctx, "default/"+s.provision, trivet.RedeployRequest{}, "op")
	case "continue", "cancel":
		return s.decide("default/"+s.provision, command)
	case "installed":
		return s.statedInstalled()
	}
	return s.doRelease(m, command)
}

// claim creates a provision that selects the machine by its label, beside the one that has it.
func (s *subject) claim() error {
	name := s.provision
	if _, err := s.Provisions.Get("default/" + name); err == nil {
		name += "-again"
	}
	s.write(func(tx *store.Tx) error {
		return s.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": s.name}}})
	})
	return s.Claim(s.Context(), "default/"+name)
}

func (s *subject) deleteProvision() error {
	_, err := s.Store.Update(s.Context(), func(tx *store.Tx) error {
		p, err := s.Provisions.In(tx).Get("default/" + s.provision)
		if err != nil {
			return err
		}
		return errors.Join(s.Release(tx, p), s.Provisions.In(tx).Delete("default/"+s.provision))
	})
	return err
}

// expire lets every attempt of the running step exceed its deadline; of an action, until its agent was lost too often.
func (s *subject) expire() error {
	for range 100 {
		w, err := s.Workflows.Get(trivet.Resolve("", s.get().Status.Workflow))
		if err != nil {
			return err
		}
		wait, _, ok := workflow.CurrentWait(w)
		if !ok {
			return nil
		}
		if err := s.Expire(s.Context(), s.name, wait); err != nil {
			return err
		}
	}
	return errors.New("the run never ends")
}

// powerOff carries out the power intent as the BMC's head does, where it is to power off.
func (s *subject) powerOff(m *trivet.Machine) error {
	if m.Status.Intent == nil || m.Status.Intent.Want != "off" {
		return trivet.ErrConflict
	}
	held, err := s.AcquireIntent(s.Context(), s.name, *m.Status.Intent, 0)
	if err != nil {
		return err
	}
	s.runs = false
	return s.RecordPower(s.Context(), s.name, held, "off")
}

// check verifies that no machine is available while its system may run, and that a provision which succeeded has its
// machine.
func (s *subject) check(after string) {
	s.Helper()
	m := s.get()
	available := m.Status.State == trivet.MachineAvailable
	if claimed := m.Status.State == trivet.MachineClaimed; claimed {
		w, err := s.Workflows.Get(trivet.Resolve("", m.Status.Workflow))
		available = err != nil || !workflow.RunsFormer(&m.Status, w)
	}
	if s.runs && available {
		s.Errorf("after %s: the machine is %s, and its system runs", after, m.Status.State)
	}
	p, err := s.Provisions.Get("default/" + s.provision)
	if err == nil && p.Status.State == trivet.ProvisionSucceeded &&
		(workflow.StateOf(&m.Status) != trivet.MachineActive || m.Status.Provision != p.Name) {
		s.Errorf("after %s: the provision succeeded, but the machine is %s for %q", after, m.Status.State,
			m.Status.Provision)
	}
}

// A machine that was quarantined while it was active is active again when it is accepted, and no selector matches it.
func TestAcceptRestoresAnActiveMachine(t *testing.T) {
	r := newRack(t)
	m := r.newMachine(1)
	for _, command := range strings.Fields("accept claim boot report phone-home quarantine accept claim") {
		r.must(m.do(command))
	}
	if st := m.get().Status; st.State != trivet.MachineActive || st.Provision != m.provision || st.Former != "" {
		t.Errorf("the machine: %+v", st)
	}
	p, err := r.Provisions.Get("default/" + m.provision + "-again")
	if err != nil || p.Status.State != trivet.ProvisionPending {
		t.Errorf("the next provision: %+v, %v", p.Status, err)
	}
}
