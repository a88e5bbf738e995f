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

func (r *rack) redeploy(name string, req trivet.RedeployRequest) error {
	return r.Redeploy(r.Context(), "default/"+name, req, "alice")
}

func (r *rack) changeSite(change func(*trivet.Site)) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		change(site)
		return r.Sites.In(tx).Put(site)
	})
}

// The machine that serves a provision is installed again: it keeps the provision and its address, and what it runs has
// no part in the run.
func TestRedeploy(t *testing.T) {
	r := newServed(t, unchanged)
	before := r.machineNamed("p1").Status
	r.must(r.redeploy("a", trivet.RedeployRequest{Reason: "new image"}))
	p, m := r.provisionNamed("a"), r.machineNamed("p1")
	if p.Status.State != trivet.ProvisionRunning || p.Status.Machine != "p1" || p.Status.Address != "10.0.0.1" ||
		p.Status.Attempts != 2 || p.Status.Workflow != "a-2" || !p.Status.Ended.IsZero() {
		t.Errorf("the provision: %+v", p.Status)
	}
	if m.Status.State != trivet.MachineClaimed || m.Status.Provision != "a" || m.Status.Workflow != "a-2" ||
		m.Status.Epoch <= before.Epoch || m.Status.Intent == nil || m.Status.Intent.Want != "cycle" ||
		m.Status.Intent.Boot != "network" || r.holder("10.0.0.1") != "p1" {
		t.Errorf("the machine: %+v", m.Status)
	}
	if got := r.message("p1", trivet.ReasonRedeployed); got != "alice redeploys provision a on this machine: new image" {
		t.Errorf("the event: %q", got)
	}
	w := r.run("a-2")
	if w.Spec.Redeploys != "a-1" || w.Spec.Attempt != 2 || w.Status.Current().Name != trivet.StepPowerOn {
		t.Errorf("the run: %+v, %+v", w.Spec, w.Status)
	}
	for _, token := range []auth.BootToken{{Machine: "p1", Epoch: before.Epoch, Run: r.run("a-1").UID},
		{Machine: "p1", Epoch: m.Status.Epoch, Run: r.run("a-1").UID}} {
		if err := r.PhoneHome(t.Context(), token, nil); err != nil && !errors.Is(err, trivet.ErrFenced) {
			t.Error(err)
		}
		if st := r.machineNamed("p1").Status; st.State != trivet.MachineClaimed {
			t.Errorf("after the former system phoned home: %+v", st)
		}
	}
	r.installOn("p1")
	p, m = r.provisionNamed("a"), r.machineNamed("p1")
	if p.Status.State != trivet.ProvisionSucceeded || p.Status.Machine != "p1" || p.Status.Address != "10.0.0.1" ||
		m.Status.State != trivet.MachineActive || m.Status.Provision != "a" {
		t.Errorf("after the run: %+v, %+v", p.Status, m.Status)
	}
	r.must(r.redeploy("a", trivet.RedeployRequest{}))
	if w := r.run("a-3"); w.Spec.Redeploys != "a-2" {
		t.Errorf("once more: %+v", w.Spec)
	}
}

// redeploys is what outcomes is, for a machine that is installed again: before an agent was granted the run, when it
// was, and when the new system starts.
const redeploys = `
            accept  quarantine  boot          delete     expire       phone-home  off  recover              redeploy
active      -       q:active    -             releasing  -            -           -    -                    claimed
redeployed  -       q:releasing provisioning  releasing  q:releasing  -           -    frozen:claimed       -
installing  -       q:available -             available  q:available  -           -    frozen:provisioning  -
starting    -       q:releasing -             releasing  releasing    active      -    frozen:provisioning  -
q:active    active  -           -             q:releasing -           -           -    -                    -
`

var redeployStates = []stateBy{
	{"active", installed}, {"redeployed", installed + "redeploy"}, {"installing", installed + "redeploy boot"},
	{"starting", installed + "redeploy boot report"}, {"q:active", installed + "quarantine"},
}

// A machine that is installed again is not available, whatever ends that, while its former system may run.
func TestEveryCommandDuringARedeploy(t *testing.T) {
	r := newRack(t)
	r.upgraded(trivet.CurrentRelease)
	r.inStates(redeployStates, redeploys, func(m *subject, state, command string) string {
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

// Where the site wipes the disks of deleted provisions, so are those of a machine that was to be installed again.
func TestDeletedDuringARedeploy(t *testing.T) {
	r := newServed(t, unchanged)
	r.changeSite(func(site *trivet.Site) { site.Spec.Release = trivet.ReleaseWipe })
	r.must(r.redeploy("a", trivet.RedeployRequest{}))
	r.release("a")
	m := r.machineNamed("p1")
	w, err := r.Workflows.Get(trivet.Resolve("", m.Status.Workflow))
	if err != nil || m.Status.State != trivet.MachineReleasing || w.Spec.Release != trivet.ReleaseWipe {
		t.Errorf("the machine: %+v, its run: %+v, %v", m.Status, w, err)
	}
}

// A machine that does not boot for it is powered off, and its provision goes on with another one, to which the address
// moves.
func TestFailureOfARedeploy(t *testing.T) {
	r := newServed(t, unchanged)
	r.must(r.redeploy("a", trivet.RedeployRequest{}))
	m, p := r.failRunAt("a", trivet.StepDHCP)
	if m.Name != "p1" || m.Status.State != trivet.MachineQuarantined || m.Status.Former != trivet.MachineReleasing ||
		m.Status.Intent == nil || m.Status.Intent.Want != "off" {
		t.Errorf("the machine: %+v", m.Status)
	}
	if p.Status.State != trivet.ProvisionPending || p.Status.WaitsFor != "power p1" || len(p.Status.Spent) != 1 {
		t.Errorf("the provision: %+v", p.Status)
	}
	r.bmcReports("p1", "off")
	if m := r.machineNamed("p1"); workflow.StateOf(&m.Status) != trivet.MachineAvailable {
		t.Errorf("once it is off: %+v", m.Status)
	}
	r.must(r.Claim(t.Context(), "default/a"))
	if p := r.provisionNamed("a"); p.Status.Machine == "p1" || p.Status.Address != "10.0.0.1" {
		t.Errorf("after the claim: %+v", p.Status)
	}
}

// A machine whose redeployment fails by something else than the machine still holds data of its provision, at least on
// the disks that no action names: no other provision gets it, and its own may be retried there.
func TestFailedRedeployKeepsTheMachine(t *testing.T) {
	r := newServed(t, unchanged)
	r.must(r.redeploy("a", trivet.RedeployRequest{}))
	m := r.machineNamed("p1")
	_, err := r.Hello(t.Context(), &trivet.Hello{MAC: m.Spec.NICs[0].MAC, Key: "k", BootID: "b"},
		auth.BootToken{Machine: "p1", MAC: m.Spec.NICs[0].MAC, Epoch: m.Status.Epoch})
	r.must(err)
	r.must(r.Report(t.Context(), &trivet.Sync{Machine: "p1", Epoch: r.machineNamed("p1").Status.Epoch, BootID: "b",
		Reports: []trivet.Report{{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepFailed, Final: true,
			Cause: "the image does not fit", Fault: trivet.FaultConfiguration}}}))
	if st := r.machineNamed("p1").Status; workflow.StateOf(&st) != trivet.MachineAvailable ||
		st.HoldsData != "provision a" {
		t.Errorf("the machine: %+v", st)
	}
	only := map[string]string{"only": "p1"}
	r.label("p1", only)
	r.provisionOf("z", trivet.ProvisionSpec{Template: "t", Selector: only})
	if p := r.provisionNamed("z"); p.Status.Machine == "p1" {
		t.Error("another provision has the machine")
	}
	r.must(r.Retry(t.Context(), "default/a", trivet.RetryRequest{SameMachine: true}, "alice"))
	if p := r.provisionNamed("a"); p.Status.Machine != "p1" || p.Status.State != trivet.ProvisionRunning {
		t.Errorf("after a retry on the same machine: %+v", p.Status)
	}
}

// A provision that names its machine is redeployed, too, and one with a race has no second machine then.
func TestRedeployOfOtherProvisions(t *testing.T) {
	for name, spec := range map[string]trivet.ProvisionSpec{
		"named": {Template: "t", Machine: "p1"},
		"race":  {Template: "t", Selector: map[string]string{"pool": "p"}, Race: trivet.RaceMachines},
	} {
		r := newRack(t)
		r.pool()
		r.upgraded(trivet.CurrentRelease)
		r.changeSite(func(site *trivet.Site) { site.Spec.RaceBudget = new(0) })
		r.provisionOf("a", spec)
		r.must(r.Claim(t.Context(), "default/a"))
		r.installOn("p1")
		r.changeSite(func(site *trivet.Site) { site.Spec.RaceBudget = nil })
		r.must(r.redeploy("a", trivet.RedeployRequest{}))
		r.must(r.Claim(t.Context(), "default/a"))
		if p := r.provisionNamed("a"); p.Status.Race != nil || p.Status.Machine != "p1" ||
			p.Status.State != trivet.ProvisionRunning {
			t.Errorf("%s: %+v", name, p.Status)
		}
	}
}

// What cannot be installed again is refused, and nothing is changed. A plan is refused likewise.
func TestRedeployIsRefused(t *testing.T) {
	provision := func(change func(st *trivet.ProvisionStatus)) func(r *rack, tx *store.Tx) error {
		return func(r *rack, tx *store.Tx) error {
			p, err := r.Provisions.In(tx).Get("default/a")
			if err != nil {
				return err
			}
			change(&p.Status)
			return r.Provisions.In(tx).Put(p)
		}
	}
	machine := func(change func(*trivet.Machine)) func(r *rack, tx *store.Tx) error {
		return func(r *rack, tx *store.Tx) error { return r.changeMachine(tx, "p1", change) }
	}
	for name, c := range map[string]struct {
		before func(r *rack, tx *store.Tx) error
		want   string
	}{
		"its template was deleted": {func(r *rack, tx *store.Tx) error { return r.Templates.In(tx).Delete("default/t") },
			"it cannot be installed again: get template t: not found (its machine was not changed; correct that first)"},
		"it failed": {provision(func(st *trivet.ProvisionStatus) { st.State = trivet.ProvisionFailed }),
			"it has failed (install it again: trivet retry a --same-machine --accept)"},
		"in quarantine": {machine(func(m *trivet.Machine) {
			m.Status.State, m.Status.Former = trivet.MachineQuarantined, trivet.MachineActive
		}), "redeploy machine p1: conflict: it is quarantined (accept it first: trivet accept p1)"},
		"cordoned": {machine(func(m *trivet.Machine) { m.Spec.Cordoned = true }),
			"it is cordoned (uncordon it: trivet patch machine "},
		"the machine is gone": {func(r *rack, tx *store.Tx) error { return r.Machines.In(tx).Delete("p1") }, "is not known"},
		"another provision has the machine": {machine(func(m *trivet.Machine) { m.Status.Provision = "b" }),
			"machine p1 does not serve it"},
		"older heads": {func(r *rack, tx *store.Tx) error {
			site, err := r.Sites.In(tx).Get(trivet.SiteName)
			if err != nil {
				return err
			}
			site.Status.ClusterVersion = "0.3"
			return r.Sites.In(tx).Put(site)
		}, "spec.redeploys need release 0.3.1 on all heads"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newServed(t, c.before)
			revision := r.Store.Revision()
			err := r.redeploy("a", trivet.RedeployRequest{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
			if _, planned := r.PlanRedeploy(t.Context(), "default/a"); name != "older heads" &&
				(planned == nil || planned.Error() != err.Error()) {
				t.Errorf("the plan: %v", planned)
			}
			if r.Store.Revision() != revision {
				t.Error("it was refused, and has changed something")
			}
		})
	}
}

// A plan changes nothing, and is that of the run that begins; where what would be installed has changed since, the run
// does not begin.
func TestPlanOfARedeploy(t *testing.T) {
	r := newServed(t, unchanged)
	revision := r.Store.Revision()
	first, err := r.PlanRedeploy(t.Context(), "default/a")
	r.must(err)
	second, err := r.PlanRedeploy(t.Context(), "default/a")
	r.must(err)
	if first.ID == "" || first.ID != second.ID || first.Former == nil || first.Former.Name != "a-1" ||
		first.Run.Spec.Redeploys != "a-1" || r.Store.Revision() != revision {
		t.Errorf("the plans: %+v, %+v", first, second)
	}
	if got := workflow.Differences(&first.Former.Spec, &first.Run.Spec, shown); len(got) > 0 {
		t.Errorf("nothing has changed: %+v", got)
	}
	r.write(func(tx *store.Tx) error {
		template, err := r.Templates.In(tx).Get("default/t")
		if err != nil {
			return err
		}
		template.Spec.Actions[0].Retries = 3
		return r.Templates.In(tx).Put(template)
	})
	if err := r.redeploy("a", trivet.RedeployRequest{Plan: first.ID}); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "has changed since its plan was shown") {
		t.Errorf("after a change: %v", err)
	}
	again, err := r.PlanRedeploy(t.Context(), "default/a")
	r.must(err)
	disk := func(serial string) {
		t.Helper()
		r.write(func(tx *store.Tx) error {
			return r.changeMachine(tx, "p1", func(m *trivet.Machine) { m.Spec.Disk.Serial = serial })
		})
	}
	disk("data")
	if err := r.redeploy("a", trivet.RedeployRequest{Plan: again.ID}); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("after the disk of the machine was changed: %v", err)
	}
	disk("")
	third, err := r.PlanRedeploy(t.Context(), "default/a")
	r.must(err)
	if got := workflow.Differences(&third.Former.Spec, &third.Run.Spec, shown); len(got) != 1 ||
		got[0] != (trivet.RunChange{Field: "actions.work.retries", Now: "3"}) {
		t.Errorf("what has changed: %+v", got)
	}
	r.must(r.redeploy("a", trivet.RedeployRequest{Plan: third.ID}))
	if w := r.run("a-2"); w.Spec.Actions[0].Retries != 3 {
		t.Errorf("the run: %+v", w.Spec)
	}
}

func shown(_ string, v any) any { return v }

// A member is redeployed by its own name, and its provision counts it as one that runs.
func TestRedeployOfMember(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.upgraded(trivet.CurrentRelease)
	r.waits("web", trivet.ProvisionSpec{Selector: map[string]string{"pool": "p"}, Count: new(2), MaxInFlight: 1})
	r.settle("web")
	r.installOn("p1")
	if err := r.redeploy("web", trivet.RedeployRequest{}); err == nil || !strings.Contains(err.Error(), "web-1") {
		t.Errorf("of all members: %v", err)
	}
	r.settle("web") // another one runs
	if err := r.redeploy("web-1", trivet.RedeployRequest{}); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "(wait until one of them has ended, or raise spec.maxInFlight)") {
		t.Errorf("beyond spec.maxInFlight: %v", err)
	}
	r.scale("web", 2, 2)
	r.must(r.redeploy("web-1", trivet.RedeployRequest{}))
	if p := r.provisionNamed("web"); p.Status.Members.Running != 2 || p.Status.Members.Succeeded != 0 {
		t.Errorf("the counts: %+v", p.Status.Members)
	}
}
