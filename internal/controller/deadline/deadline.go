// Package deadline ends waits: a step that exceeds its timeout, and a run whose agent is silent for too long.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/uptime"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Fleet is the transitions of a wait. Each compares: a run that went on is left alone.
type Fleet interface {
	AgentTimeout() time.Duration
	Checkpoint(ctx context.Context, machine string, wait workflow.Wait, elapsed trivet.Duration) error
	Expire(ctx context.Context, machine string, wait workflow.Wait) error
	DeclareLost(ctx context.Context, machine string, wait workflow.Wait, epoch int64, cause string) error
}

// Presence knows how long agents are silent.
type Presence interface {
	Silence(machine string, epoch int64) time.Duration
}

// Clock counts the time in which agents can be heard.
type Clock interface {
	Read() uptime.Clock
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "deadline",
	Reads:   []trivet.Kind{"Address"},
	Writes:  []trivet.Kind{"Workflow", "Machine", "Provision", "Event", "Site", "Network", "Platform", "Image"},
	Watches: []trivet.Kind{"Workflow"},
	Input:   input,
	Workers: 2,
}

// input is what a run waits for.
func input(r trivet.Record) any {
	wait, _, _ := workflow.CurrentWait(r.(*trivet.Workflow))
	return wait
}

// Config is what the controller needs.
type Config struct {
	Fleet    Fleet
	Presence Presence
	Clock    Clock
	Tables   *state.Tables
	// Rank returns how many heads go before this one for a workflow.
	Rank func(workflow string) int
}

// Controller implements [reconcile.Controller]. Its keys are full names of workflows. It counts the time of each wait by
// the head's clock, in addition to what the record contains. So a deadline expires after the death of any head, and
// never because heads were down or a clock jumped.
type Controller struct {
	Config
	mu     sync.Mutex
	timers map[string]*timer // guarded by mu; by workflow
}

// New returns the controller.
func New(cfg Config) *Controller {
	return &Controller{Config: cfg, timers: map[string]*timer{}}
}

// timer counts one wait.
type timer struct {
	uptime.Timer
	wait  workflow.Wait
	saved time.Duration // as in the record
}

// maxUnsaved is how much of a wait may be lost when all heads die at once.
const maxUnsaved = 30 * time.Second

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.Tables.Workflows.Names() }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string { return []string{e.Name} }

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	w, err := c.Tables.Workflows.Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		c.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	wait, limit, ok := workflow.CurrentWait(w)
	if !ok || faultinject.DeadlineNever {
		c.forget(name)
		return 0, nil
	}
	clock := c.Clock.Read()
	if !clock.Counting() {
		return uptime.Interval, nil
	}
	m, err := c.Tables.Machines.GetShared(w.Spec.Machine)
	if err != nil { // its deletion ends the run
		return 0, nil
	}
	queued := trivet.IsBootStep(wait.Step) && workflow.PowerQueued(m)
	t := c.timerOf(wait, w.Status.Current().Elapsed.D(), limit, clock.Counted())
	used := t.Advance(clock.Counted(), queued)
	if faultinject.DeadlineEarly {
		used *= 2
	}
	if used >= limit {
		return time.Second, c.Fleet.Expire(ctx, w.Spec.Machine, wait)
	}
	silence, err := c.checkSilence(ctx, m, w, wait)
	if err != nil {
		return 0, err
	}
	if queued {
		silence = min(silence, queuedInterval)
	}
	checkpoint, err := c.checkpoint(ctx, w, t, used, limit)
	return min(silence, limit-used, checkpoint), err
}

// queuedInterval is how often a wait is checked that is queued for a BMC.
const queuedInterval = 5 * time.Second

// checkpoint saves how much of the wait is used where that is much more than the record has, and returns when to do it
// next.
func (c *Controller) checkpoint(ctx context.Context, w *trivet.Workflow, t *timer, used,
	limit time.Duration) (after time.Duration, err error) {
	t.saved = max(t.saved, w.Status.Current().Elapsed.D()) // another head may have saved it
	unsaved := min(maxUnsaved, limit/4+time.Second)
	unsaved += unsaved / 4 * time.Duration(c.Rank(w.FullName()))
	if used-t.saved >= unsaved {
		if err := c.Fleet.Checkpoint(ctx, w.Spec.Machine, t.wait, trivet.Duration(used)); err != nil {
			return 0, err
		}
		t.saved = used
	}
	return unsaved - (used - t.saved), nil
}

// checkSilence declares the agent that the run depends on lost where it is silent for too long, and returns when to
// check again.
func (c *Controller) checkSilence(ctx context.Context, m *trivet.Machine, w *trivet.Workflow,
	wait workflow.Wait) (after time.Duration, err error) {
	epoch, ok := workflow.AwaitedAgent(m, w)
	if !ok {
		const never = 24 * time.Hour
		return never, nil
	}
	timeout := c.Fleet.AgentTimeout()
	silent := c.Presence.Silence(w.Spec.Machine, epoch)
	if silent < timeout {
		return timeout - silent + time.Millisecond, nil
	}
	cause := fmt.Sprintf("the agent was silent for %s", silent.Round(time.Second))
	return time.Second, c.Fleet.DeclareLost(ctx, w.Spec.Machine, wait, epoch, cause)
}

// timerOf returns the timer of a wait. A head that finds a partly used wait has just started: it leaves agents time to
// find it.
func (c *Controller) timerOf(wait workflow.Wait, used, limit, now time.Duration) *timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.timers[wait.Workflow]
	if !ok || t.wait != wait {
		base := min(used, limit-min(limit/4, uptime.MaxSettle))
		t = &timer{Timer: uptime.StartTimer(base, now), wait: wait, saved: used}
		c.timers[wait.Workflow] = t
	}
	return t
}

func (c *Controller) forget(workflow string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.timers, workflow)
}
