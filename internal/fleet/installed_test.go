package fleet_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// installedOutcomes is the state of a machine in every state after an operator has stated, after a recovery, that it
// runs a provision, and what a release of that provision and its redeployment lead to then.
const installedOutcomes = `
             installed    installed-delete  installed-redeploy
discovered   active       releasing         claimed
available    active       releasing         claimed
claimed      -            -                 -
provisioning -            -                 -
starting     -            -                 -
active       -            -                 -
releasing    -            -                 -
q:discovered q:active     q:releasing       q:active
q:available  q:active     q:releasing       q:active
q:active     -            -                 -
q:releasing  -            -                 -
unverified   active       releasing         claimed
q:unverified q:active     q:releasing       q:active
frozen       active       releasing         claimed
frozen-run   active       releasing         claimed
frozen-start active       releasing         claimed
`

// recovered records that the cluster was recovered.
func (r *rack) recovered() {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if errors.Is(err, trivet.ErrNotFound) {
			site, err = &trivet.Site{Meta: trivet.Meta{Kind: "Site", Name: trivet.SiteName}}, nil
		}
		if err != nil {
			return err
		}
		site.Status.Recovered = &trivet.Recovered{Incarnation: "1-x", From: "backup", Time: time.Now()}
		return r.Sites.In(tx).Put(site)
	})
}

// statedInstalled states that the machine runs its provision, which is applied again where it does not exist.
func (s *subject) statedInstalled() error {
	if _, err := s.Provisions.Get("default/" + s.provision); errors.Is(err, trivet.ErrNotFound) {
		s.write(func(tx *store.Tx) error {
			return s.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: s.provision},
				Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": s.name}}})
		})
	}
	return s.Resolve(s.Context(), "default/"+s.provision,
		trivet.ResolveRequest{Decision: trivet.ResolveInstalled, Machine: s.name}, "alice")
}

func TestInstalledInEveryState(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.recovered()
	of := slices.DeleteFunc(slices.Clone(states), func(s stateBy) bool { return s.name == "q:failed" }) // as q:available
	r.inStates(of, installedOutcomes, func(m *subject, state, what string) string {
		before := m.get().Status
		if err := m.do("installed"); err != nil {
			if after := m.get().Status; after.State != before.State || after.Epoch != before.Epoch {
				t.Errorf("%s: refused with %v, but: %+v", state, err, after)
			}
			return "-"
		}
		m.runs = true
		m.mustServeUntouched(state, before.Epoch)
		switch what {
		case "installed-delete":
			r.must(m.do("delete"))
		case "installed-redeploy":
			_ = m.do("redeploy") // of one in quarantine it is refused
		}
		m.check(state + ": " + what)
		return m.state()
	})
}

// mustServeUntouched checks that the machine serves its provision, and that nothing is done to it for that.
func (s *subject) mustServeUntouched(state string, epoch int64) {
	s.Helper()
	st := s.get().Status
	p := s.provisionNamed(s.provision)
	if p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != s.name || st.Provision != s.provision {
		s.Errorf("%s: the provision: %+v; the machine: %+v", state, p.Status, st)
	}
	if st.Intent != nil || st.Epoch <= epoch || st.AgentKey != "" {
		s.Errorf("%s: the machine: %+v", state, st)
	}
	w := s.run(st.Workflow)
	if w.Status.State != trivet.WorkflowSucceeded || w.Status.Frozen || workflow.WantsAgent(&w.Status) ||
		w.Spec.ProvisionUID != p.UID {
		s.Errorf("%s: the run: %+v", state, w.Status)
	}
	token := auth.BootToken{Machine: s.name, Epoch: st.Epoch, Run: "lost"}
	if err := s.PhoneHome(s.Context(), token, nil); !errors.Is(err, trivet.ErrFenced) {
		s.Errorf("%s: the phone-home of a run that is lost: %v", state, err)
	}
}

// What cannot be is refused: the cluster was never recovered, another machine serves the provision, or its labels do
// not match.
func TestInstalledIsRefused(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	m, other := r.newMachine(1), r.newMachine(2)
	r.do(m, "accept recover")
	if err := m.statedInstalled(); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("without a recovery: %v", err)
	}
	r.recovered()
	r.must(m.statedInstalled())
	if err := m.statedInstalled(); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("again: %v", err)
	}
	r.do(other, "accept recover")
	other.provision = "p2"
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p2"},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": "none"}}})
	})
	if err := other.statedInstalled(); !errors.Is(err, trivet.ErrConflict) || other.state() != "unverified" {
		t.Errorf("another selector: %v", err)
	}
}

// What Trivet itself has done to a machine since the recovery is known: no statement replaces that.
func TestInstalledIsKnownSince(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.recovered()
	for i, path := range []string{"accept claim boot report phone-home delete boot",
		"accept claim boot recover continue boot delete"} {
		m := r.newMachine(i)
		r.do(m, path)
		before := m.state()
		if err := m.statedInstalled(); !errors.Is(err, trivet.ErrConflict) || m.state() != before {
			t.Errorf("%s: %v, and it is %s", path, err, m.state())
		}
	}
	m := r.newMachine(9)
	r.do(m, "accept claim boot delete")
	r.recovered()
	r.do(m, "recover")
	r.must(m.statedInstalled()) // that was before
	wrong := r.newMachine(10)
	r.do(wrong, "accept claim recover installed delete off")
	r.must(wrong.statedInstalled()) // what was stated was no action
}

// Of two statements at the same time one holds.
func TestInstalledTwice(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.recovered()
	machines := []*subject{r.newMachine(1), r.newMachine(2)}
	for _, m := range machines {
		r.do(m, "accept recover")
		r.label(m.name, map[string]string{"n": "both"})
	}
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "both"},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"n": "both"}}})
	})
	outcomes := make(chan error)
	for _, m := range machines {
		go func() {
			outcomes <- r.Resolve(t.Context(), "default/both",
				trivet.ResolveRequest{Decision: trivet.ResolveInstalled, Machine: m.name}, "alice")
		}()
	}
	if a, b := <-outcomes, <-outcomes; (a == nil) == (b == nil) || !errors.Is(errors.Join(a, b), trivet.ErrConflict) {
		t.Errorf("the outcomes: %v, %v", a, b)
	}
	served := r.provisionNamed("both").Status.Machine
	for _, m := range machines {
		if is := m.state() == string(trivet.MachineActive); is != (m.name == served) {
			t.Errorf("machine %s is %s, and %s serves the provision", m.name, m.state(), served)
		}
	}
}

// A provision whose template is gone is served all the same, and released; to install the machine again is refused.
func TestInstalledWithoutTemplate(t *testing.T) {
	r := newRack(t).upgraded(trivet.CurrentRelease)
	r.recovered()
	m := r.newMachine(1)
	r.do(m, "accept claim recover")
	r.write(func(tx *store.Tx) error { return r.Templates.In(tx).Delete("default/t") })
	r.must(m.statedInstalled())
	m.mustServeUntouched("frozen", 0)
	if err := m.do("redeploy"); err == nil || m.state() != "active" {
		t.Errorf("without the template: %v, and the machine is %s", err, m.state())
	}
	m.runs = true
	r.do(m, "delete")
	m.check("released")
}

// Of two machines that raced before a recovery one is stated to run the provision; the other one is unverified.
func TestInstalledAfterRace(t *testing.T) {
	for _, winner := range []string{"p1", "p2"} {
		r := newRace(t, unchanged)
		r.recovered()
		r.must(errors.Join(r.of("p1").recover(), r.of("p2").recover()))
		r.must(r.Resolve(t.Context(), "default/a",
			trivet.ResolveRequest{Decision: trivet.ResolveInstalled, Machine: winner}, "alice"))
		p := r.provisionNamed("a")
		if p.Status.Race != nil || p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != winner {
			t.Errorf("%s: %+v", winner, p.Status)
		}
		loser := map[string]string{"p1": "p2", "p2": "p1"}[winner]
		if m := r.machineNamed(loser); m.Status.State != trivet.MachineUnverified || m.Status.Intent != nil {
			t.Errorf("%s: the other machine: %+v", winner, m.Status)
		}
	}
}
