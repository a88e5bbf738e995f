package deadline

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/uptime"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Every head measures the boot steps of each run, by the timers of its waits. When the run has ended, the head that
// ranks first for it adds the run to what was learnt. Of a step that a head did not see from beginning to end, or while
// it was paused or without a quorum, it learns nothing.

// Learner keeps what is learnt of runs that have ended.
type Learner interface {
	Add(r learnt.Run)
	// Exchange reads what all heads have learnt, and saves what this one has.
	Exchange(ctx context.Context, now time.Time) error
}

// learnInterval is after how many checkpoints what was learnt is exchanged: about once a minute.
const learnInterval = 6

// boot is what a head measures of a run's boot steps.
type boot struct {
	step   string // that it measures; empty: none
	missed time.Duration
	took   map[string]time.Duration // by step
}

// begin measures a step from now on if it is a boot step that has just begun.
func (c *Controller) begin(w *trivet.Workflow, wait workflow.Wait, clock uptime.Clock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, t := c.boots[wait.Workflow], c.timers[wait.Workflow]
	if c.Learner == nil || t == nil || t.wait != wait || t.measured || !trivet.IsBootStep(wait.Step) {
		return
	}
	if b == nil {
		b = &boot{took: map[string]time.Duration{}}
		c.boots[wait.Workflow] = b
	}
	t.measured = true
	if b.step = wait.Step; w.Revision <= c.since {
		b.step = "" // this head does not know when it began
	}
	b.missed = clock.Missed()
}

// measure ends the measurement of a boot step that is done.
func (c *Controller) measure(w *trivet.Workflow, clock uptime.Clock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, t := c.boots[w.FullName()], c.timers[w.FullName()]
	if b == nil || t == nil || b.step == "" || t.wait.UID != w.UID {
		return
	}
	step := w.Status.Step(b.step)
	if step == nil || step.State != trivet.StepDone {
		return
	}
	if clock.Missed() == b.missed {
		b.took[b.step] = t.Advance(clock.Counted(), false)
	}
	b.step = ""
}

// learn adds a run that has ended to what was learnt, if this head ranks first for it.
func (c *Controller) learn(w *trivet.Workflow) {
	c.mu.Lock()
	b := c.boots[w.FullName()]
	_, known := c.timers[w.FullName()] // else it had ended before this head knew it
	c.mu.Unlock()
	if c.Learner == nil || !known || !w.Status.State.Ended() || c.Rank(w.FullName()) != 0 {
		return
	}
	m, err := c.Tables.Machines.GetShared(w.Spec.Machine)
	if err != nil || m.UID != w.Spec.MachineUID {
		return
	}
	took := map[string]time.Duration{}
	if b != nil {
		took = b.took
	}
	if m.Spec.BMC == nil { // a person powers it on
		delete(took, trivet.StepDHCP)
	}
	c.Learner.Add(learnt.RunOf(w, m.Status.Inventory, took))
}

func (c *Controller) exchangeLearnt(ctx context.Context) {
	if c.Learner == nil {
		return
	}
	if err := c.Learner.Exchange(ctx, time.Now()); err != nil && ctx.Err() == nil {
		c.Log.Warn("cannot save what was learnt of runs", "error", err)
	}
}

// checkLate reports the running step as late where it takes longer than earlier ones, and returns when to check again.
func (c *Controller) checkLate(ctx context.Context, w *trivet.Workflow, wait workflow.Wait,
	used time.Duration) (after time.Duration, err error) {
	late := workflow.LateAfter(w)
	switch {
	case late == 0:
		return never, nil
	case used < late:
		return late - used, nil
	}
	return time.Second, c.Fleet.ReportLate(ctx, w.Spec.Machine, wait)
}

// checkHedge asks for a second machine for a provision that hedges where the running step is slow, and returns when to
// check again.
func (c *Controller) checkHedge(ctx context.Context, w *trivet.Workflow, wait workflow.Wait,
	used time.Duration) (after time.Duration, err error) {
	slow := workflow.HedgeAfter(w)
	if slow == 0 || w.Spec.Provision == "" {
		return never, nil
	}
	p, err := c.Tables.Provisions.GetShared(trivet.Resolve(w.Project, w.Spec.Provision))
	if err != nil || p.UID != w.Spec.ProvisionUID || !provision.MayHedge(p) {
		return never, nil // it was deleted, or does not hedge
	}
	if used < slow {
		return slow - used, nil
	}
	return time.Second, c.Fleet.Hedge(ctx, w.Spec.Machine, wait)
}
