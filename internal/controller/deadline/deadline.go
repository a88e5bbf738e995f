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

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "deadline",
	Reads:   []trivet.Kind{"Site"},
	Writes:  []trivet.Kind{"Workflow", "Machine", "Provision", "Event"},
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
	Tables   *state.Tables
	// Rank returns how many heads go before this one for a workflow.
	Rank func(workflow string) int
	// Quorum reports whether writes can be served.
	Quorum func() bool
}

// Controller implements [reconcile.Controller]. Its keys are names of workflows. It counts the time of each wait in
// which the wait could have ended, in addition to what the record contains. So a deadline expires after the
// death of any head, and never because heads were down or a clock jumped.
type Controller struct {
	Config
	uptime *uptime
	mu     sync.Mutex
	timers map[string]*timer // guarded by mu; by workflow
}

// New returns the controller.
func New(cfg Config) *Controller {
	return &Controller{Config: cfg, uptime: newUptime(cfg.Quorum), timers: map[string]*timer{}}
}

// timer counts one wait.
type timer struct {
	wait  workflow.Wait
	base  time.Duration // used before this head began to count
	since time.Duration // of the uptime
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

// Run implements [reconcile.Background].
func (c *Controller) Run(ctx context.Context) { c.uptime.run(ctx) }

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
	now, counting := c.uptime.now()
	if !counting {
		return sampleInterval, nil
	}
	t := c.timerOf(wait, w.Status.Current().Elapsed.D(), limit, now)
	used := t.base + now - t.since
	if faultinject.DeadlineEarly {
		used *= 2
	}
	if used >= limit {
		return time.Second, c.Fleet.Expire(ctx, w.Spec.Machine, wait)
	}
	return c.unexpired(ctx, w, t, used, limit)
}

// unexpired checks whether the agent is silent, saves how much of the wait is used, and returns when to check again.
func (c *Controller) unexpired(ctx context.Context, w *trivet.Workflow, t *timer, used,
	limit time.Duration) (time.Duration, error) {
	silence, err := c.checkSilence(ctx, w, t.wait)
	if err != nil {
		return 0, err
	}
	t.saved = max(t.saved, w.Status.Current().Elapsed.D()) // another head may have saved it
	unsaved := min(maxUnsaved, limit/4+time.Second)
	unsaved += unsaved / 4 * time.Duration(c.Rank(w.Name))
	if used-t.saved >= unsaved {
		if err := c.Fleet.Checkpoint(ctx, w.Spec.Machine, t.wait, trivet.Duration(used)); err != nil {
			return 0, err
		}
		t.saved = used
	}
	return min(silence, limit-used, unsaved-(used-t.saved)), nil
}

// checkSilence declares the agent that holds the run lost where it is silent for too long, and returns when to check
// again.
func (c *Controller) checkSilence(ctx context.Context, w *trivet.Workflow, wait workflow.Wait) (time.Duration, error) {
	const never = 24 * time.Hour
	if w.Status.State != trivet.WorkflowRunning {
		return never, nil
	}
	timeout := c.Fleet.AgentTimeout()
	silent := c.Presence.Silence(w.Spec.Machine, w.Status.Epoch)
	if silent < timeout {
		return timeout - silent + time.Millisecond, nil
	}
	cause := fmt.Sprintf("the agent was silent for %s", silent.Round(time.Second))
	return time.Second, c.Fleet.DeclareLost(ctx, w.Spec.Machine, wait, w.Status.Epoch, cause)
}

// timerOf returns the timer of a wait. A head that finds a partly used wait has just started: it leaves agents time to
// find it.
func (c *Controller) timerOf(wait workflow.Wait, used, limit, now time.Duration) *timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.timers[wait.Workflow]
	if !ok || t.wait != wait {
		t = &timer{wait: wait, base: min(used, limit-min(limit/4, settleTime)), since: now, saved: used}
		c.timers[wait.Workflow] = t
	}
	return t
}

func (c *Controller) forget(workflow string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.timers, workflow)
}
