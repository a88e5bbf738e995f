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
	// Shown returns when the fault of a machine showed last; zero where that is not known.
	Shown func(machine string) time.Time
	// Kills are when heads were killed.
	Kills []time.Time
	// Ended is when the end of each provision was seen.
	Ended map[string]time.Time
	// SilentAfter is how long after its fault has shown a machine is silent.
	SilentAfter time.Duration
	// AgentTimeout is that of the site, and Pace what its deadlines are divided by.
	AgentTimeout time.Duration
	Pace         int
}

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

func (g *grader) gradeMachines() {
	for _, m := range g.final.Machines {
		truth := g.machines[m.Name]
		if truth == nil || m.Status.State != trivet.MachineQuarantined {
			continue
		}
		g.result.Quarantined++
		if truth.isSound() {
			g.result.HealthyQuarantined++
			g.violation("machine %s is not at fault (%q) and in quarantine: %s", m.Name, truth.Fault.Kind, m.Status.Reason)
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

// gradeProvisions checks the provisions: how many machines they used, and that those which could succeed did.
func (g *grader) gradeProvisions() {
	bad := map[string]bool{} // machines that were put into quarantine for what was not their fault
	for _, p := range g.final.Provisions {
		truth := g.provisions[p.Name]
		if truth == nil {
			continue
		}
		g.result.Switched += len(p.Status.Spent) + p.Status.Withdrawn
		if p.Status.Attempts > 1+g.truth.Alternatives {
			g.violation("provision %s used %d machines", p.Name, p.Status.Attempts)
		}
		for _, s := range p.Status.Spent {
			if m := g.machines[s.Machine]; m != nil {
				fault, _ := expected(m, truth)
				if fault == trivet.FaultImage || fault == trivet.FaultPlatform {
					bad[s.Machine] = true
				}
			}
		}
		g.gradeProvision(truth, &p.Status)
	}
	g.result.SpentOnBadImage = len(bad)
}

func (g *grader) gradeProvision(truth *Provision, st *trivet.ProvisionStatus) {
	switch {
	case st.State == trivet.ProvisionSucceeded:
	case !st.State.Ended():
		g.violation("provision %s has not ended: %s, %s", truth.Name, st.State, st.Reason)
	case len(st.Spent)+st.Withdrawn >= g.truth.Alternatives: // its machines were at fault, which gradeRuns checks
	case truth.BadImage || truth.Pool == Old:
		want := trivet.FaultImage
		if truth.Pool == Old {
			want = trivet.FaultPlatform
		}
		if st.Failure == nil || st.Failure.Type != want {
			g.result.WrongType++
			g.violation("provision %s failed with %+v; its type must be %s", truth.Name, st.Failure, want)
		}
	default:
		g.violation("provision %s failed though machines without a fault were left: %s", truth.Name, st.Reason)
	}
}

// gradeAttempts checks that each failure was seen in time.
func (g *grader) gradeAttempts() {
	for _, a := range g.seen.attempts {
		m := g.machines[a.Machine]
		if m == nil {
			continue
		}
		due, limit := g.due(m, &a)
		if late := a.Detected.Sub(due); late > g.tolerance(m, &a, limit) {
			g.result.LateFailures++
			g.violation("attempt of %s in run %s was seen to fail %s after its deadline", a.Step, a.Run,
				late.Round(100*time.Millisecond))
		}
	}
}

// perKill is by how much each head that is killed meanwhile may delay what is seen: the time without a leader is not
// counted, and as long again, in which agents find another head.
const perKill = 2 * time.Second

// bmcHold is how long a head may wait for a BMC that hangs. The next command to it begins after that, and with it the time
// of the next attempt.
const bmcHold = 25 * time.Second

// tolerance is how long after its deadline the failure of an attempt may be seen.
func (g *grader) tolerance(m *Machine, a *Attempt, limit time.Duration) time.Duration {
	t := max(limit/10, 2*time.Second)
	if m.Fault == (Fault{BMC, a.Step, "hangs"}) {
		t += bmcHold
	}
	for _, at := range g.final.Kills {
		if at.After(a.Started) && at.Before(a.Detected) {
			t += perKill
		}
	}
	return t
}

// due returns when the failure of an attempt must be known, and how long the limit is that was exceeded then. That of an
// action which fails by itself is none.
func (g *grader) due(m *Machine, a *Attempt) (time.Time, time.Duration) {
	shown := g.final.Shown(m.Name)
	switch {
	case trivet.IsBootStep(a.Step) || shown.IsZero():
		return a.Started.Add(a.Timeout), a.Timeout
	case m.Fault.Mode == "silent":
		return shown.Add(g.final.SilentAfter + g.final.AgentTimeout), g.final.AgentTimeout
	case m.Fault.Mode == "error":
		return shown, 0
	}
	return a.Started.Add(a.Timeout), a.Timeout
}
