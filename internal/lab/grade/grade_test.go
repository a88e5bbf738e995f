package grade

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// A site has each fault in its share, and the same seed gives the same site.
func TestNew(t *testing.T) {
	for _, n := range []int{MinMachines, 200, 1000} {
		site := New(n, 7)
		if diff := cmp.Diff(site, New(n, 7)); diff != "" {
			t.Errorf("%d machines: the same seed gives another site:\n%s", n, diff)
		}
		kinds, racks := map[Kind]int{}, map[int]int{}
		for _, m := range site.Machines {
			kinds[m.Fault.Kind]++
			if m.Fault.Kind == Network {
				racks[m.Rack]++
			}
		}
		want := map[Kind]int{Dead: share(n, 15), Flaky: share(n, 5), BMC: share(n, 3), Network: PerRack, Platform: max(4, n/20)}
		for kind, count := range want {
			if kinds[kind] != count {
				t.Errorf("%d machines: %d are %s, want %d", n, kinds[kind], kind, count)
			}
		}
		if len(racks) != 1 {
			t.Errorf("%d machines: the racks %v have no network", n, racks)
		}
		bad, spare := map[string]bool{}, kinds[""]+kinds[Flaky]
		for _, p := range site.Provisions {
			if p.BadImage {
				bad[p.Template] = true
			}
			if p.Pool == General {
				spare--
			}
		}
		if len(bad) != 1 || spare < 0 {
			t.Errorf("%d machines: templates %v are bad, %d sound machines are left", n, bad, spare)
		}
	}
	if cmp.Diff(New(200, 1), New(200, 2)) == "" {
		t.Error("two seeds give one site")
	}
}

var start = time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// scene is a site with one machine of each kind of fault, and what is seen there.
type scene struct {
	truth Truth
	seen  *Observer
	final Final
	shown map[string]time.Time
}

func newScene() *scene {
	s := &scene{seen: NewObserver(), shown: map[string]time.Time{}, truth: Truth{Alternatives: 2,
		Machines: []Machine{
			{Name: "good", Pool: General},
			{Name: "dead", Pool: General, Fault: Fault{Dead, trivet.StepScript, ""}},
			{Name: "silent", Pool: General, Fault: Fault{Dead, Wipe, "silent"}},
			{Name: "gone", Pool: General, Fault: Fault{Dead, Wipe, "error"}},
			{Name: "dark", Pool: General, Fault: Fault{Network, trivet.StepDHCP, ""}},
			{Name: "old", Pool: Old, Fault: Fault{Platform, trivet.StepHello, ""}},
			{Name: "late", Pool: General, Fault: Fault{Dead, Seed, "hang"}},
		},
		Provisions: []Provision{{Name: "p", Pool: General, Template: "t0"},
			{Name: "bad", Pool: General, Template: "t9", BadImage: true}, {Name: "old", Pool: Old, Template: "t0"}}}}
	s.final = Final{Shown: func(m string) time.Time { return s.shown[m] }, AgentTimeout: 5 * time.Second, Pace: 12,
		Ended: map[string]time.Time{}}
	return s
}

// run shows a run whose step began at 0 with a timeout of 20 s, and ended so many seconds later.
func (s *scene) run(name, provision, machine, step string, fault trivet.FailureType, seconds float64) {
	w := &trivet.Workflow{Meta: trivet.Meta{Name: name},
		Spec: trivet.WorkflowSpec{Provision: provision, Machine: machine, Attempt: 1}}
	w.Status = trivet.WorkflowStatus{State: trivet.WorkflowRunning, Steps: []trivet.Step{{Name: step,
		State: trivet.StepRunning, Attempt: 1, Started: start, Timeout: trivet.Duration(20 * time.Second)}}}
	s.seen.Note(w, start)
	end := *w
	end.Status.State, end.Status.Steps = trivet.WorkflowSucceeded, slices.Clone(w.Status.Steps)
	end.Status.Steps[0].State = trivet.StepDone
	if fault != "" {
		end.Status.State, end.Status.Steps[0].State = trivet.WorkflowFailed, trivet.StepFailed
		end.Status.Failure = &trivet.Failure{Type: fault, Step: step}
	}
	s.seen.Note(&end, at(seconds))
}

func (s *scene) provision(name string, st trivet.ProvisionStatus) {
	s.final.Provisions = append(s.final.Provisions, &trivet.Provision{Meta: trivet.Meta{Name: name, Created: start}, Status: st})
}

func (s *scene) quarantine(machine string) {
	s.final.Machines = append(s.final.Machines, &trivet.Machine{Meta: trivet.Meta{Name: machine},
		Status: trivet.MachineStatus{State: trivet.MachineQuarantined}})
}

func spent(machines ...string) (all []trivet.SpentMachine) {
	for _, m := range machines {
		all = append(all, trivet.SpentMachine{FormerMachine: trivet.FormerMachine{Machine: m}})
	}
	return all
}

// What is as it must be is no violation; each thing that is not is one, and is counted.
func TestGrade(t *testing.T) {
	succeeded := trivet.ProvisionStatus{State: trivet.ProvisionSucceeded}
	failed := func(fault trivet.FailureType) trivet.ProvisionStatus {
		return trivet.ProvisionStatus{State: trivet.ProvisionFailed, Failure: &trivet.Failure{Type: fault}}
	}
	for name, c := range map[string]struct {
		do   func(*scene)
		want string // the violation; empty: none
		n    func(*Result) int
	}{
		"a good machine": {func(s *scene) { s.run("p-1", "p", "good", Seed, "", 3); s.provision("p", succeeded) }, "", nil},
		"dead at a boot step": {func(s *scene) {
			s.run("p-1", "p", "dead", trivet.StepScript, trivet.FaultMachine, 21)
			s.quarantine("dead")
		}, "", func(r *Result) int { return r.Quarantined }},
		"the wrong type": {func(s *scene) { s.run("p-1", "p", "dead", trivet.StepScript, trivet.FaultNetwork, 21) },
			"it must be machine at boot-script", func(r *Result) int { return r.WrongType }},
		"the wrong step": {func(s *scene) { s.run("p-1", "p", "dead", trivet.StepDHCP, trivet.FaultMachine, 21) },
			"it must be machine at boot-script", func(r *Result) int { return r.WrongType }},
		"a good machine fails": {func(s *scene) { s.run("p-1", "p", "good", Seed, trivet.FaultMachine, 3) },
			"it must be no failure", func(r *Result) int { return r.WrongType }},
		"a dead machine succeeds": {func(s *scene) { s.run("p-1", "p", "dead", Seed, "", 3) }, "which must fail at boot-script", nil},
		"a bad image":             {func(s *scene) { s.run("bad-1", "bad", "good", Image, trivet.FaultImage, 3) }, "", nil},
		"dead before a bad image": {func(s *scene) { s.run("bad-1", "bad", "dead", trivet.StepScript, trivet.FaultMachine, 21) }, "", nil},
		"a bad image before dead": {func(s *scene) { s.run("bad-1", "bad", "late", Image, trivet.FaultImage, 3) }, "", nil},
		"no network":              {func(s *scene) { s.run("p-1", "p", "dark", trivet.StepDHCP, trivet.FaultNetwork, 21) }, "", nil},
		"seen late": {func(s *scene) { s.run("p-1", "p", "dead", trivet.StepScript, trivet.FaultMachine, 22.5) },
			"was seen to fail 2.5s after its deadline", func(r *Result) int { return r.LateFailures }},
		"seen late, as a head was killed": {func(s *scene) {
			s.final.Kills = []time.Time{at(10), at(30)}
			s.run("p-1", "p", "dead", trivet.StepScript, trivet.FaultMachine, 23.5)
		}, "", nil},
		"silence": {func(s *scene) { s.shown["silent"] = start; s.run("p-1", "p", "silent", Wipe, trivet.FaultMachine, 6) }, "", nil},
		"silence, seen late": {func(s *scene) { s.shown["silent"] = start; s.run("p-1", "p", "silent", Wipe, trivet.FaultMachine, 8) },
			"3s after its deadline", func(r *Result) int { return r.LateFailures }},
		"an error, seen late": {func(s *scene) { s.shown["gone"] = at(1); s.run("p-1", "p", "gone", Wipe, trivet.FaultMachine, 4) },
			"3s after its deadline", func(r *Result) int { return r.LateFailures }},
		"a good machine in quarantine": {func(s *scene) { s.quarantine("old") }, "is not at fault",
			func(r *Result) int { return r.HealthyQuarantined }},
		"two runs at once": {func(s *scene) {
			for _, name := range []string{"p-1", "bad-1"} {
				s.seen.Note(&trivet.Workflow{Meta: trivet.Meta{Name: name}, Spec: trivet.WorkflowSpec{Machine: "good"}}, start)
			}
		}, "at the same time", nil},
		"gave up early": {func(s *scene) { s.provision("p", failed(trivet.FaultNetwork)) }, "though machines without a fault", nil},
		"used up": {func(s *scene) {
			st := failed(trivet.FaultMachine)
			st.Spent = spent("dead", "gone")
			s.provision("p", st)
		}, "", func(r *Result) int { return r.Switched - 1 }},
		"too many machines":      {func(s *scene) { st := succeeded; st.Attempts = 4; s.provision("p", st) }, "used 4 machines", nil},
		"does not end":           {func(s *scene) { s.provision("p", trivet.ProvisionStatus{State: trivet.ProvisionPending}) }, "has not ended", nil},
		"the bad image is known": {func(s *scene) { s.provision("bad", failed(trivet.FaultImage)) }, "", nil},
		"the bad image is not":   {func(s *scene) { s.provision("bad", failed(trivet.FaultConfiguration)) }, "its type must be image", nil},
		"one is spent on a platform": {func(s *scene) {
			st := failed(trivet.FaultPlatform)
			st.Spent = spent("old")
			s.provision("old", st)
		}, "", func(r *Result) int { return r.SpentOnBadImage }},
	} {
		s := newScene()
		c.do(s)
		r := Grade(&s.truth, s.seen, &s.final)
		if got := strings.Join(r.Violations, "; "); c.want == "" && got != "" || !strings.Contains(got, c.want) ||
			r.Failed() != (c.want != "") {
			t.Errorf("%s: the violations are %q, want %q", name, got, c.want)
		}
		if c.n != nil && c.n(&r) != 1 {
			t.Errorf("%s: the counts are %+v", name, r)
		}
	}
}

// Three machines in quarantine for a bad platform are too many.
func TestGradeSpent(t *testing.T) {
	s := newScene()
	for i := range 3 {
		name := fmt.Sprint("old", i)
		s.truth.Machines = append(s.truth.Machines, Machine{Name: name, Pool: Old, Fault: Fault{Platform, trivet.StepHello, ""}})
		s.provision("old", trivet.ProvisionStatus{State: trivet.ProvisionFailed, Spent: spent(name),
			Failure: &trivet.Failure{Type: trivet.FaultPlatform}})
	}
	if r := Grade(&s.truth, s.seen, &s.final); r.SpentOnBadImage != 3 || !r.Failed() {
		t.Errorf("%+v", r)
	}
}

// The provisioner with one timeout fails where the first machine has any fault, after its timeout.
func TestCompare(t *testing.T) {
	s := newScene()
	s.truth.Provisions = []Provision{{Name: "p", Pool: General}, {Name: "q", Pool: General}}
	s.run("p-1", "p", "dead", trivet.StepScript, trivet.FaultMachine, 21)
	s.run("q-1", "q", "good", Seed, "", 3)
	for _, name := range []string{"p", "q"} {
		s.provision(name, trivet.ProvisionStatus{State: trivet.ProvisionSucceeded})
	}
	s.final.Ended = map[string]time.Time{"p": at(30), "q": at(3)}
	want := Comparison{Pace: 12,
		Trivet:     Outcome{2, 2, Quantiles{21, 21}, Quantiles{30, 30}},
		OneTimeout: Outcome{2, 1, Quantiles{125, 125}, Quantiles{3, 3}}}
	if diff := cmp.Diff(want, Grade(&s.truth, s.seen, &s.final).Times); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
