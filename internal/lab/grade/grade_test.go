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

// scene is a site with one machine of each kind of fault, where all is as it must be: p succeeded, and the two others
// failed before they had a machine.
type scene struct {
	truth Truth
	seen  *Observer
	final Final
}

const limit = 20 * time.Second // of each step

func newScene() *scene {
	s := &scene{seen: NewObserver(), truth: Truth{Alternatives: 2,
		Machines: []Machine{
			{Name: "good", Pool: General},
			{Name: "better", Pool: General},
			{Name: "dead", Pool: General, Fault: Fault{Dead, trivet.StepScript, ""}},
			{Name: "silent", Pool: General, Fault: Fault{Dead, Wipe, "silent"}},
			{Name: "gone", Pool: General, Fault: Fault{Dead, Wipe, "error"}},
			{Name: "dark", Pool: General, Fault: Fault{Network, trivet.StepDHCP, ""}},
			{Name: "old", Pool: Old, Fault: Fault{Platform, trivet.StepHello, ""}},
			{Name: "late", Pool: General, Fault: Fault{Dead, Seed, "hang"}},
		},
		Provisions: []Provision{{Name: "p", Pool: General, Template: "t0"},
			{Name: "bad", Pool: General, Template: "t9", BadImage: true}, {Name: "old", Pool: Old, Template: "t0"}}}}
	s.final = Final{AgentTimeout: 5 * time.Second, Pace: 12, Ended: map[string]time.Time{},
		Timeouts: map[string]time.Duration{}}
	for _, step := range order {
		s.final.Timeouts[step] = limit
	}
	s.run("p-1", "p", "good", Seed, "", 3)
	s.provision("p", trivet.ProvisionSucceeded, "")
	s.provision("bad", trivet.ProvisionFailed, trivet.FaultImage)
	s.provision("old", trivet.ProvisionFailed, trivet.FaultPlatform)
	return s
}

// run shows a run whose step began at 0, and ended so many seconds later. A machine at fault is put into quarantine.
func (s *scene) run(name, provision, machine, step string, fault trivet.FailureType, seconds float64) {
	w := &trivet.Workflow{Meta: trivet.Meta{Name: name},
		Spec: trivet.WorkflowSpec{Provision: provision, Machine: machine, Attempt: 1}}
	w.Status = trivet.WorkflowStatus{State: trivet.WorkflowRunning, Steps: []trivet.Step{{Name: step,
		State: trivet.StepRunning, Attempt: 1, Started: start, Timeout: trivet.Duration(limit)}}}
	s.seen.Note(w, start)
	end := *w
	end.Status.State, end.Status.Steps = trivet.WorkflowSucceeded, slices.Clone(w.Status.Steps)
	end.Status.Steps[0].State = trivet.StepDone
	if fault != "" {
		end.Status.State, end.Status.Steps[0].State = trivet.WorkflowFailed, trivet.StepFailed
		end.Status.Failure = &trivet.Failure{Type: fault, Step: step}
	}
	s.seen.Note(&end, at(seconds))
	if fault == trivet.FaultMachine {
		s.machine(machine, trivet.MachineQuarantined)
	}
}

// fails shows a run of p that failed before the one that succeeded.
func (s *scene) fails(machine, step string, fault trivet.FailureType, seconds float64) {
	s.run("p-"+machine, "p", machine, step, fault, seconds)
}

func (s *scene) provision(name string, state trivet.ProvisionState, fault trivet.FailureType, spent ...string) {
	p := &trivet.Provision{Meta: trivet.Meta{Name: name, Created: start}}
	if p.Status.State = state; fault != "" {
		p.Status.Failure = &trivet.Failure{Type: fault}
	}
	if state == trivet.ProvisionSucceeded {
		p.Status.Machine = "good"
	}
	for _, m := range spent {
		p.Status.Spent = append(p.Status.Spent, trivet.SpentMachine{FormerMachine: trivet.FormerMachine{Machine: m}})
	}
	s.without(name)
	s.final.Provisions = append(s.final.Provisions, p)
}

func (s *scene) without(provision string) {
	s.final.Provisions = slices.DeleteFunc(s.final.Provisions, func(p *trivet.Provision) bool { return p.Name == provision })
}

func (s *scene) machine(name string, state trivet.MachineState) {
	s.final.Machines = slices.DeleteFunc(s.final.Machines, func(m *trivet.Machine) bool { return m.Name == name })
	s.final.Machines = append(s.final.Machines, &trivet.Machine{Meta: trivet.Meta{Name: name},
		Status: trivet.MachineStatus{State: state}})
}

// What is as it must be is no violation; each thing that is not is one, and is counted.
func TestGrade(t *testing.T) {
	const machine, network, script = trivet.FaultMachine, trivet.FaultNetwork, trivet.StepScript
	for name, c := range map[string]struct {
		do   func(*scene)
		want string            // the violation; empty: none
		n    func(*Result) int // what must be 1; nil: nothing
	}{
		"all is well": {func(*scene) {}, "", nil},
		"dead at a boot step": {func(s *scene) { s.fails("dead", script, machine, 21) }, "",
			func(r *Result) int { return r.Quarantined }},
		"the wrong type": {func(s *scene) { s.fails("dead", script, network, 21) }, "it must be machine at boot-script",
			func(r *Result) int { return r.WrongType }},
		"the wrong step": {func(s *scene) { s.fails("dead", trivet.StepDHCP, machine, 21) },
			"it must be machine at boot-script", func(r *Result) int { return r.WrongType }},
		"a good machine fails":    {func(s *scene) { s.fails("better", Seed, network, 3) }, "it must be no failure", nil},
		"a dead machine succeeds": {func(s *scene) { s.fails("dead", Seed, "", 3) }, "which must fail at boot-script", nil},
		"a bad image":             {func(s *scene) { s.run("bad-1", "bad", "good", Image, trivet.FaultImage, 3) }, "", nil},
		"dead before a bad image": {func(s *scene) { s.run("bad-1", "bad", "dead", script, machine, 21) }, "", nil},
		"a bad image before dead": {func(s *scene) { s.run("bad-1", "bad", "late", Image, trivet.FaultImage, 3) }, "", nil},
		"no network":              {func(s *scene) { s.fails("dark", trivet.StepDHCP, network, 21) }, "", nil},
		"seen late": {func(s *scene) { s.fails("dead", script, machine, 22.5) }, "2.5s after its deadline",
			func(r *Result) int { return r.LateFailures }},
		"seen early": {func(s *scene) { s.fails("dead", script, machine, 2) }, "18s before its deadline", nil},
		"another deadline": {func(s *scene) {
			s.final.Timeouts[script] = time.Second
			s.fails("dead", script, machine, 21)
		}, "has a deadline of 20s; it must be 1s", nil},
		"seen late, as a head was killed": {func(s *scene) {
			s.final.Outages = []Outage{{at(10), at(11)}, {at(30), at(31)}}
			s.fails("dead", script, machine, 23.5)
		}, "", nil},
		"seen late, as a head was down": {func(s *scene) {
			s.final.Outages = []Outage{{at(-3), at(1.5)}}
			s.fails("dead", script, machine, 23.5)
		}, "", nil},
		"seen late, after a head was down": {func(s *scene) {
			s.final.Outages = []Outage{{at(-3), at(-0.5)}}
			s.fails("dead", script, machine, 23.5)
		}, "3.5s after its deadline",
			func(r *Result) int { return r.LateFailures }},
		"silence": {func(s *scene) { s.fails("silent", Wipe, machine, 6) }, "", nil},
		"silence, seen late": {func(s *scene) { s.fails("silent", Wipe, machine, 8) }, "3s after its deadline",
			func(r *Result) int { return r.LateFailures }},
		"an error, seen late": {func(s *scene) { s.fails("gone", Wipe, machine, 4) }, "4s after its deadline",
			func(r *Result) int { return r.LateFailures }},
		"a hang, seen early": {func(s *scene) { s.fails("late", Seed, machine, 3) }, "17s before its deadline", nil},
		"a good machine in quarantine": {func(s *scene) { s.machine("old", trivet.MachineQuarantined) }, "is not at fault",
			func(r *Result) int { return r.HealthyQuarantined }},
		"a dead machine is not": {func(s *scene) {
			s.fails("dead", script, machine, 21)
			s.machine("dead", trivet.MachineAvailable)
		}, "machine dead has failed and is not in quarantine", nil},
		"two runs at once": {func(s *scene) {
			for _, name := range []string{"p-7", "p-8"} {
				s.seen.Note(&trivet.Workflow{Meta: trivet.Meta{Name: name},
					Spec: trivet.WorkflowSpec{Machine: "better"}}, start)
			}
		}, "at the same time", nil},
		"a run does not end": {func(s *scene) {
			s.seen.Note(&trivet.Workflow{Meta: trivet.Meta{Name: "p-7"},
				Spec: trivet.WorkflowSpec{Machine: "better", Provision: "p"}}, start)
		}, "run p-7 has not ended", nil},
		"gave up early": {func(s *scene) {
			s.fails("dead", script, machine, 21)
			s.provision("p", trivet.ProvisionFailed, machine, "dead")
		}, "though machines without a fault", nil},
		"used up": {func(s *scene) {
			s.fails("dead", script, machine, 21)
			s.fails("gone", Wipe, machine, 1)
			s.run("p-1", "p", "late", Seed, machine, 20)
			s.provision("p", trivet.ProvisionFailed, machine, "dead", "gone", "late")
		}, "", func(r *Result) int { return r.Switched - 2 }},
		"used up, of the wrong type": {func(s *scene) {
			s.fails("dead", script, machine, 21)
			s.fails("gone", Wipe, machine, 1)
			s.run("p-1", "p", "late", Seed, machine, 20)
			s.provision("p", trivet.ProvisionFailed, network)
		}, "its type must be machine", func(r *Result) int { return r.WrongType }},
		"too many machines": {func(s *scene) {
			s.fails("dead", script, machine, 21)
			s.fails("gone", Wipe, machine, 1)
			s.fails("late", Seed, machine, 20)
		}, "used 4 machines", nil},
		"the same machine again": {func(s *scene) {
			s.fails("dead", script, machine, 21)
			s.run("p-dead2", "p", "dead", script, machine, 21)
		}, "used machine dead again", nil},
		"it does not end": {func(s *scene) { s.provision("p", trivet.ProvisionPending, "") }, "has not ended", nil},
		"it is gone":      {func(s *scene) { s.without("p") }, "provision p is gone", nil},
		"it succeeded without a run": {func(s *scene) {
			s.seen = NewObserver()
		}, "succeeded without a run", nil},
		"the bad image is not known": {func(s *scene) {
			s.provision("bad", trivet.ProvisionFailed, trivet.FaultConfiguration)
		}, "its type must be image", func(r *Result) int { return r.WrongType }},
		"one is spent on a platform": {func(s *scene) {
			s.provision("old", trivet.ProvisionFailed, trivet.FaultPlatform, "old")
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
		s.truth.Provisions = append(s.truth.Provisions, Provision{Name: name, Pool: Old})
		s.provision(name, trivet.ProvisionFailed, trivet.FaultPlatform, name)
	}
	if r := Grade(&s.truth, s.seen, &s.final); r.SpentOnBadImage != 3 || !r.Failed() {
		t.Errorf("%+v", r)
	}
}

// The provisioner with one timeout fails where the first machine has any fault, after its timeout.
func TestCompare(t *testing.T) {
	s := newScene()
	s.seen, s.final.Provisions = NewObserver(), nil
	s.truth.Provisions = []Provision{{Name: "p", Pool: General}, {Name: "q", Pool: General}}
	s.run("p-1", "p", "dead", trivet.StepScript, trivet.FaultMachine, 21)
	s.run("q-1", "q", "good", Seed, "", 3)
	for _, name := range []string{"p", "q"} {
		s.provision(name, trivet.ProvisionSucceeded, "")
	}
	s.final.Ended = map[string]time.Time{"p": at(30), "q": at(3)}
	want := Comparison{Pace: 12,
		Trivet:     Outcome{2, 2, Quantiles{21, 21}, Quantiles{30, 30}},
		OneTimeout: Outcome{2, 1, Quantiles{125, 125}, Quantiles{3, 3}}}
	if diff := cmp.Diff(want, Grade(&s.truth, s.seen, &s.final).Times); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
