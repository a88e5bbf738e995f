package deadline

import (
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Late are runs that do not go on as they must.
type Late struct {
	Overdue, Silent         int
	OverdueRuns, SilentRuns []string // their names, in order, at most maxLate
}

// maxLate bounds the names in a Late.
const maxLate = 10

// lateAfter is how long after its deadline a wait that has not ended is overdue: the transition that ends it may need
// several attempts.
const lateAfter = time.Minute

// Late returns the runs whose wait did not end a minute after its deadline, and those whose agents are silent for more
// than half of the time after which they are declared lost. It reads runs at work only.
func (c *Controller) Late() (late Late) {
	clock := c.Clock.Read()
	if !clock.Counting() {
		return late
	}
	for _, name := range c.overdue(clock.Counted()) {
		late.Overdue++
		late.OverdueRuns = append(late.OverdueRuns, name)
	}
	timeout := c.Fleet.AgentTimeout()
	for _, name := range c.waiting() {
		w, err := c.Tables.Workflows.GetShared(name)
		if err != nil || w.Status.Paused != nil { // its agent is found lost when it is resumed
			continue
		}
		if epoch, ok := workflow.AwaitedAgent(w); ok && c.Presence.Silence(w.Spec.Machine, epoch) > timeout/2 {
			late.Silent++
			late.SilentRuns = append(late.SilentRuns, name)
		}
	}
	late.OverdueRuns, late.SilentRuns = named(late.OverdueRuns), named(late.SilentRuns)
	return late
}

// named returns some of the runs as people name them.
func named(runs []string) []string {
	slices.Sort(runs)
	runs = runs[:min(len(runs), maxLate)]
	for i, name := range runs {
		runs[i] = trivet.ShortName(name)
	}
	return runs
}

// overdue returns the runs whose wait should have ended before, at a counted time.
func (c *Controller) overdue(now time.Duration) (runs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range c.advanced(now) {
		if t.Used() > t.limit+lateAfter {
			runs = append(runs, name)
		}
	}
	return runs
}

// waiting returns all runs that wait.
func (c *Controller) waiting() (runs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.timers {
		runs = append(runs, name)
	}
	return runs
}
