package membership

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

// machineJoiner is a head that joins as a provision has installed it, on machine m1 at the joiner's address.
func (s *site) machineJoiner(id string) *joiner {
	s.t.Helper()
	j := s.joiner(id)
	j.token.Secret = s.joinToken(func(*auth.BootToken) {})
	return j
}

func (s *site) joinToken(change func(*auth.BootToken)) auth.Secret {
	s.t.Helper()
	b := auth.BootToken{Purpose: auth.PurposeJoin, Machine: "m1", MAC: "52:54:00:00:00:01", Epoch: 3, Run: "run-1",
		Expires: time.Now().Add(time.Hour)}
	change(&b)
	return auth.Secret(must(s.keys.SignBoot(b))(s.t))
}

// promoted are the records of a machine that a provision has installed as a head.
type promoted struct {
	machine   trivet.Machine
	provision trivet.Provision
	run       trivet.Workflow
}

func (s *site) promote(change func(*promoted)) {
	s.t.Helper()
	p := promoted{
		machine: trivet.Machine{Meta: trivet.Meta{Name: "m1", UID: "m1-uid"}, Status: trivet.MachineStatus{
			State: trivet.MachineActive, Epoch: 4, Workflow: "head-m1-1", Provision: "head-m1"}},
		provision: trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "head-m1", UID: "p-uid"},
			Spec: trivet.ProvisionSpec{Template: "head", Machine: "m1", Head: &trivet.ProvisionHead{}},
			Status: trivet.ProvisionStatus{State: trivet.ProvisionSucceeded, Machine: "m1", MachineUID: "m1-uid",
				Address: "127.0.0.1", Workflow: "head-m1-1"}},
		run: trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "head-m1-1", UID: "run-1"},
			Spec: trivet.WorkflowSpec{Machine: "m1", MachineUID: "m1-uid", Provision: "head-m1", Template: "head"}},
	}
	if change != nil {
		change(&p)
	}
	put := func(do func(tx *store.Tx) error) {
		if _, err := s.records.Store.Update(s.t.Context(), do); err != nil {
			s.t.Fatal(err)
		}
	}
	put(func(tx *store.Tx) error {
		return s.records.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	put(func(tx *store.Tx) error {
		return errors.Join(s.records.Machines.In(tx).Put(&p.machine), s.records.Provisions.In(tx).Put(&p.provision),
			s.records.Workflows.In(tx).Put(&p.run))
	})
}

// What a provision has installed as a head joins once, and its record has the machine. The same request again gets the
// same response; another one is refused, also when the head was removed.
func TestMachineJoins(t *testing.T) {
	s := newSite(t, 1)
	s.promote(nil)
	j := s.machineJoiner("a")
	first, err := j.join()
	if err != nil {
		t.Fatal(err)
	}
	if st := j.record().Status; st.Machine != "m1" || st.MachineUID != "m1-uid" || st.Run != "run-1" {
		t.Errorf("its record: %+v", st)
	}
	if again, err := j.join(); err != nil || again.Name != first.Name || again.Member != first.Member {
		t.Errorf("the same request: %+v, %v", again, err)
	}
	other := s.machineJoiner("b")
	if _, err := other.join(); !errors.Is(err, trivet.ErrForbidden) || !strings.Contains(err.Error(), "it was used") {
		t.Errorf("another request: %v", err)
	}
	s.record(first.Name, trivet.RoleVoter, func(h *trivet.Head) { h.Status.State = trivet.HeadRemoved })
	for _, j := range []*joiner{j, other} {
		if _, err := j.join(); !errors.Is(err, trivet.ErrForbidden) {
			t.Errorf("after its removal: %v", err)
		}
	}
}

// What was installed on a machine joins only by a token of its last run, from the address of that machine, once the run
// has succeeded, and while the machine is the provision's.
func TestMachineDoesNotJoin(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*promoted)
		token  func(*auth.BootToken)
		role   string
		is     error
		text   string
	}{
		"another address": {change: func(p *promoted) { p.provision.Status.Address = "127.0.0.9" },
			is: trivet.ErrForbidden, text: "it is for machine m1 at 127.0.0.9"},
		"another run since": {change: func(p *promoted) { p.run.UID = "run-2" }, is: trivet.ErrForbidden,
			text: "given to something else since"},
		"a run of a former machine": {change: func(p *promoted) { p.run.Spec.MachineUID = "before" },
			is: trivet.ErrForbidden, text: "given to something else since"},
		"released": {change: func(p *promoted) {
			p.machine.Status.Provision, p.machine.Status.State = "", trivet.MachineReleasing
		}, is: trivet.ErrForbidden, text: "given to something else since"},
		"no head": {change: func(p *promoted) { p.provision.Spec.Head = nil }, is: trivet.ErrForbidden,
			text: "given to something else since"},
		"not installed yet": {change: func(p *promoted) { p.machine.Status.State = trivet.MachineProvisioning },
			is: trivet.ErrUnavailable, text: "has not ended"},
		"in quarantine": {change: func(p *promoted) {
			p.machine.Status.State, p.machine.Status.Former = trivet.MachineQuarantined, trivet.MachineActive
		}, is: trivet.ErrForbidden, text: "in quarantine"},
		"another role": {role: trivet.RoleWitness, is: trivet.ErrForbidden, text: "it is for a voter"},
		"expired": {token: func(b *auth.BootToken) { b.Expires = time.Now().Add(-time.Minute) },
			is: trivet.ErrUnauthenticated, text: "expired"},
		"another machine": {token: func(b *auth.BootToken) { b.Machine = "m2" }, is: trivet.ErrForbidden,
			text: "given to something else since"},
	} {
		s := newSite(t, 1)
		s.promote(c.change)
		j := s.machineJoiner("a")
		if c.token != nil {
			j.token.Secret = s.joinToken(c.token)
		}
		if c.role != "" {
			j.req.Role = c.role
		}
		if _, err := j.join(); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v: %s", name, err, c.is, c.text)
		}
		for _, h := range s.records.Heads.List() {
			if h.Status.MachineUID != "" {
				t.Errorf("%s: it has joined: %+v", name, h)
			}
		}
	}
	s := newSite(t, 1)
	s.promote(nil)
	j := s.machineJoiner("a")
	j.token.Secret = newSite(t, 1).joinToken(func(*auth.BootToken) {})
	if _, err := j.join(); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("a token of another cluster: %v", err)
	}
	j.token.Secret = s.joinToken(func(b *auth.BootToken) { b.Purpose = auth.PurposePhoneHome })
	if _, err := j.join(); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("a token for something else: %v", err)
	}
}

// A text of a token of a machine is read as one, with its role.
func TestParseTokenOfMachine(t *testing.T) {
	s := newSite(t, 0)
	secret := s.joinToken(func(*auth.BootToken) {})
	for _, role := range []string{trivet.RoleVoter, trivet.RoleStandby, trivet.RoleWitness} {
		text := s.keys.CA.Trust() + "." + secret.Reveal()
		if role != trivet.RoleVoter {
			text += "." + role
		}
		got, err := ParseToken(text)
		if err != nil || got.Role != role || got.Secret != secret || got.Trust != s.keys.CA.Trust() || len(got.ID) != 16 {
			t.Errorf("%s: %+v, %v", role, got, err)
		}
	}
}
