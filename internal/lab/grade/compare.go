package grade

import (
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// OneTimeout is after how long the provisioner that Trivet is compared with knows that an install has failed. It
// neither tries again nor uses another machine.
const OneTimeout = 25 * time.Minute

// Comparison is a run beside what a provisioner with one timeout would have shown, which is computed from the truth:
// each provision has the machine that Trivet chose first for it. It succeeds in the same time where nothing is wrong
// with machine and image, and fails after the timeout otherwise.
type Comparison struct {
	// Pace is what all deadlines, and the timeout, are divided by.
	Pace       int     `json:"pace"`
	Trivet     Outcome `json:"trivet"`
	OneTimeout Outcome `json:"oneTimeout"`
}

// Outcome is what became of the provisions. Times are in seconds since the provision was created.
type Outcome struct {
	Provisions int `json:"provisions"`
	Succeeded  int `json:"succeeded"`
	// FailureSeen is when the first failure of a provision was known, of those that had one.
	FailureSeen Quantiles `json:"failureSeen"`
	// Working is when its machine worked, of those that succeeded.
	Working Quantiles `json:"working"`
}

// Quantiles are of a list of seconds; 0 of an empty one.
type Quantiles struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

func (g *grader) compare() Comparison {
	c := Comparison{Pace: g.final.Pace}
	c.Trivet.Provisions, c.OneTimeout.Provisions = len(g.truth.Provisions), len(g.truth.Provisions)
	timeout := OneTimeout / time.Duration(max(1, g.final.Pace))
	first, failed := g.firstRuns()
	var seen, working, otherSeen, otherWorking []time.Duration
	for _, p := range g.final.Provisions {
		truth, run := g.provisions[p.Name], first[p.Name]
		if truth == nil {
			continue
		}
		ended := g.final.Ended[p.Name].Sub(p.Created)
		if at, ok := failed[p.Name]; ok {
			seen = append(seen, at.Sub(p.Created))
		} else if p.Status.State == trivet.ProvisionFailed {
			seen = append(seen, ended)
		}
		if p.Status.State == trivet.ProvisionSucceeded {
			working = append(working, ended)
		}
		if run != nil && run.Status.State == trivet.WorkflowSucceeded && g.machines[run.Spec.Machine].Fault.Kind == "" {
			otherWorking = append(otherWorking, ended)
		} else {
			otherSeen = append(otherSeen, timeout)
		}
	}
	c.Trivet.Succeeded, c.Trivet.FailureSeen, c.Trivet.Working = len(working), quantiles(seen), quantiles(working)
	c.OneTimeout.Succeeded, c.OneTimeout.FailureSeen, c.OneTimeout.Working = len(otherWorking), quantiles(otherSeen),
		quantiles(otherWorking)
	return c
}

// firstRuns returns the first run of each provision, and when the first failure of each was seen.
func (g *grader) firstRuns() (first map[string]*trivet.Workflow, failed map[string]time.Time) {
	first, failed = map[string]*trivet.Workflow{}, map[string]time.Time{}
	for _, w := range g.sortedRuns() {
		name := w.Spec.Provision
		if other := first[name]; other == nil || w.Spec.Attempt < other.Spec.Attempt {
			first[name] = w
		}
		if at, ended := g.seen.ends[w.Name]; ended && w.Status.Failure != nil &&
			(failed[name].IsZero() || at.Before(failed[name])) {
			failed[name] = at
		}
	}
	return first, failed
}

func quantiles(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	slices.Sort(all)
	at := func(share float64) float64 {
		return all[min(int(share*float64(len(all))), len(all)-1)].Round(100 * time.Millisecond).Seconds()
	}
	return Quantiles{at(0.5), at(0.99)}
}
