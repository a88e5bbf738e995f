package grade

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// Final is a site at the end of a run.
type Final struct {
	Machines   []*trivet.Machine
	Provisions []*trivet.Provision
	// Timeouts are how long an attempt of each step may take.
	Timeouts map[string]time.Duration
	// Outages are of the heads that were killed.
	Outages []Outage
	// Ended is when the end of each provision was seen.
	Ended map[string]time.Time
	// SilentAfter is how long after its fault has shown a machine is silent.
	SilentAfter time.Duration
	// AgentTimeout is that of the site, and Pace what its deadlines are divided by.
	AgentTimeout time.Duration
	Pace         int
}

// Outage is from the kill of a head until it is ready again.
type Outage struct{ From, To time.Time }

// Result is how a run compares with the truth.
type Result struct {
	Switched           int `json:"switched"`           // machines that a provision went on from
	Quarantined        int `json:"quarantined"`        // machines, at the end
	HealthyQuarantined int `json:"healthyQuarantined"` // of these, not at fault
	WrongType          int `json:"wrongType"`          // failures
	LateFailures       int `json:"lateFailures"`       // attempts whose failure was seen too late
	SpentOnBadImage    int `json:"spentOnBadImage"`    // machines put into quarantine for a bad image or platform
	// Violations are what must not be, for people.
	Violations []string `json:"violations"`
	// Times are how long it took until failures were seen and machines worked, beside a provisioner with one timeout.
	Times Comparison `json:"times"`
}

// Failed reports whether anything is as it must not be.
func (r *Result) Failed() bool { return len(r.Violations) > 0 }

// grader is a comparison in progress.
type grader struct {
	truth      *Truth
	seen       *Observer
	final      *Final
	machines   map[string]*Machine
	provisions map[string]*Provision
	result     Result
}

// Grade compares what was seen with the truth.
func Grade(t *Truth, o *Observer, f *Final) Result {
	g := &grader{truth: t, seen: o, final: f, machines: map[string]*Machine{}, provisions: map[string]*Provision{}}
	for i := range t.Machines {
		g.machines[t.Machines[i].Name] = &t.Machines[i]
	}
	for i := range t.Provisions {
		g.provisions[t.Provisions[i].Name] = &t.Provisions[i]
	}
	g.result.Violations = append([]string{}, o.twice...)
	g.gradeMachines()
	g.gradeRuns()
	g.gradeProvisions()
	g.gradeAttempts()
	if g.result.SpentOnBadImage > maxSpent {
		g.violation("%d machines were put into quarantine for a bad image or platform", g.result.SpentOnBadImage)
	}
	g.result.Times = g.compare()
	return g.result
}

// maxSpent is how many machines a bad image or platform may put into quarantine.
const maxSpent = 2

func (g *grader) violation(format string, args ...any) {
	g.result.Violations = append(g.result.Violations, fmt.Sprintf(format, args...))
}

// gradeMachines checks which machines are in quarantine: those that failed by their own fault, and no other one.
func (g *grader) gradeMachines() {
	failed := map[string]bool{}
	for _, w := range g.sortedRuns() {
		if f := w.Status.Failure; f != nil && f.Type == trivet.FaultMachine {
			failed[w.Spec.Machine] = true
		}
	}
	state := map[string]trivet.MachineState{}
	for _, m := range g.final.Machines {
		state[m.Name] = m.Status.State
	}
	for i := range g.truth.Machines {
		m := &g.truth.Machines[i]
		if state[m.Name] != trivet.MachineQuarantined {
			if failed[m.Name] {
				g.violation("machine %s has failed and is not in quarantine: %q", m.Name, state[m.Name])
			}
			continue
		}
		g.result.Quarantined++
		if m.isSound() {
			g.result.HealthyQuarantined++
			g.violation("machine %s is not at fault (%q) and in quarantine", m.Name, m.Fault.Kind)
		}
	}
}

// sortedRuns returns the runs of the provisions that are known, in the order of their names.
func (g *grader) sortedRuns() (all []*trivet.Workflow) {
	for _, w := range g.seen.runs {
		if g.machines[w.Spec.Machine] != nil && g.provisions[w.Spec.Provision] != nil {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *trivet.Workflow) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// gradeRuns compares the failures of the runs.
func (g *grader) gradeRuns() {
	for _, w := range g.sortedRuns() {
		m, p, failure := g.machines[w.Spec.Machine], g.provisions[w.Spec.Provision], w.Status.Failure
		fault, step := expected(m, p)
		switch {
		case failure == nil && w.Status.State == trivet.WorkflowSucceeded && fault != "":
			g.violation("run %s succeeded on %s, which must fail at %s", w.Name, m.Name, step)
		case failure == nil:
		case fault != failure.Type || step != failure.Step:
			g.result.WrongType++
			g.violation("run %s on %s failed at %s with type %s; it must be %s", w.Name, m.Name, failure.Step,
				failure.Type, orNone(fault, step))
		}
	}
}

func orNone(fault trivet.FailureType, step string) string {
	if fault == "" {
		return "no failure"
	}
	return fmt.Sprintf("%s at %s", fault, step)
}

// gradeProvisions checks the provisions: that each is there and has ended, how many machines it used, and that it
// succeeded where it could.
func (g *grader) gradeProvisions() {
	final, runs := map[string]*trivet.Provision{}, map[string][]*trivet.Workflow{}
	for _, p := range g.final.Provisions {
		final[p.Name] = p
	}
	for _, w := range g.sortedRuns() {
		runs[w.Spec.Provision] = append(runs[w.Spec.Provision], w)
	}
	for i := range g.truth.Provisions {
		truth := &g.truth.Provisions[i]
		g.gradeRunsOf(truth, runs[truth.Name])
		if p := final[truth.Name]; p != nil {
			g.result.Switched += len(p.Status.Spent) + p.Status.Withdrawn
			g.gradeProvision(truth, &p.Status, runs[truth.Name])
		} else {
			g.violation("provision %s is gone", truth.Name)
		}
	}
	g.result.SpentOnBadImage = len(g.spentOnBad(final))
}

// gradeRunsOf checks which machines a provision used.
func (g *grader) gradeRunsOf(truth *Provision, runs []*trivet.Workflow) {
	if len(runs) > 1+g.truth.Alternatives {
		g.violation("provision %s used %d machines", truth.Name, len(runs))
	}
	spent := map[string]bool{}
	for _, w := range runs {
		machine := w.Spec.Machine
		if spent[machine] {
			g.violation("provision %s used machine %s again", truth.Name, machine)
		}
		if !w.Status.State.Ended() {
			g.violation("run %s has not ended: %s", w.Name, w.Status.State)
		}
		spent[machine] = w.Status.Failure != nil && w.Status.Failure.Type == trivet.FaultMachine
	}
}

// gradeProvision checks how a provision ended.
func (g *grader) gradeProvision(truth *Provision, st *trivet.ProvisionStatus, runs []*trivet.Workflow) {
	works := func(w *trivet.Workflow) bool {
		return w.Status.State == trivet.WorkflowSucceeded && w.Spec.Machine == st.Machine
	}
	want := trivet.FaultMachine
	switch {
	case len(runs) > g.truth.Alternatives: // its last machine was at fault, or its image
	case truth.BadImage:
		want = trivet.FaultImage
	case truth.Pool == Old:
		want = trivet.FaultPlatform
	default:
		want = ""
	}
	switch {
	case st.State == trivet.ProvisionSucceeded && !slices.ContainsFunc(runs, works):
		g.violation("provision %s succeeded without a run that did on machine %q", truth.Name, st.Machine)
	case st.State == trivet.ProvisionSucceeded:
	case !st.State.Ended():
		g.violation("provision %s has not ended: %s, %s", truth.Name, st.State, st.Reason)
	case want == "":
		g.violation("provision %s failed though machines without a fault were left: %s", truth.Name, st.Reason)
	case st.Failure == nil || st.Failure.Type != want && !isLast(st.Failure, runs):
		g.result.WrongType++
		g.violation("provision %s failed with %+v; its type must be %s", truth.Name, st.Failure, want)
	}
}

// isLast reports whether a failure has the type of that of the last run, which gradeRuns checks.
func isLast(f *trivet.Failure, runs []*trivet.Workflow) bool {
	return slices.ContainsFunc(runs, func(w *trivet.Workflow) bool {
		return w.Spec.Attempt == len(runs) && w.Status.Failure != nil && w.Status.Failure.Type == f.Type
	})
}

// spentOnBad returns the machines that were put into quarantine for a bad image or platform.
func (g *grader) spentOnBad(final map[string]*trivet.Provision) map[string]bool {
	bad := map[string]bool{}
	for name, p := range final {
		truth := g.provisions[name]
		for _, s := range p.Status.Spent {
			if m := g.machines[s.Machine]; m != nil && truth != nil {
				if fault, _ := expected(m, truth); fault == trivet.FaultImage || fault == trivet.FaultPlatform {
					bad[s.Machine] = true
				}
			}
		}
	}
	return bad
}

// gradeAttempts checks that each failure was seen in time, and not before its deadline.
func (g *grader) gradeAttempts() {
	for _, a := range g.seen.attempts {
		m := g.machines[a.Machine]
		if m == nil {
			continue
		}
		if want := g.final.Timeouts[a.Step]; a.Timeout != want {
			g.violation("%s in run %s has a deadline of %s; it must be %s", a.Step, a.Run, a.Timeout, want)
		}
		due, limit, byDeadline := g.due(m, &a)
		tolerance := g.tolerance(m, &a, limit)
		switch off := a.Detected.Sub(due).Round(100 * time.Millisecond); {
		case off > tolerance:
			g.result.LateFailures++
			g.violation("attempt of %s in run %s was seen to fail %s after its deadline", a.Step, a.Run, off)
		case byDeadline && off < -tolerance:
			g.violation("attempt of %s in run %s was seen to fail %s before its deadline", a.Step, a.Run, -off)
		}
	}
}

// perKill is by how much each head that is down meanwhile may delay what is seen, and for how long after its kill at
// least: the time without a leader is not counted, and as long again, in which agents find another head. A BMC that it
// used is not used by another head until it is back.
const perKill = 2 * time.Second

// bmcHold is how long a head may wait for a BMC that hangs. The next command to it begins after that, and with it the
// time of the next attempt.
const bmcHold = 25 * time.Second

// tolerance is how long after its deadline the failure of an attempt may be seen.
func (g *grader) tolerance(m *Machine, a *Attempt, limit time.Duration) time.Duration {
	t := max(limit/10, 2*time.Second)
	if m.Fault == (Fault{BMC, a.Step, Hangs}) {
		t += bmcHold
	}
	for _, o := range g.final.Outages {
		over := o.To
		if least := o.From.Add(perKill); over.Before(least) {
			over = least
		}
		if over.After(a.Began) && o.From.Before(a.Detected) {
			t += perKill
		}
	}
	return t
}

// due returns when the failure of an attempt must be known, and which limit was exceeded then. An action that fails by
// itself has none. byDeadline: it must not be known before.
func (g *grader) due(m *Machine, a *Attempt) (due time.Time, limit time.Duration, byDeadline bool) {
	shows := m.Fault.Step == a.Step
	switch {
	case trivet.IsBootStep(a.Step), shows && m.Fault.Mode == Hang:
		return a.Began.Add(a.Timeout), a.Timeout, true
	case shows && m.Fault.Mode == Silent:
		return a.Began.Add(g.final.SilentAfter + g.final.AgentTimeout), g.final.AgentTimeout, false
	case shows && m.Fault.Mode == Error:
		return a.Began, 0, false
	}
	return a.Began.Add(a.Timeout), a.Timeout, false
}
