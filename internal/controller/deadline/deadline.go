// Package deadline ends waits: a step that exceeds its timeout, and a run whose agent is silent for too long.
package deadline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	Observe(was, is *trivet.Workflow)
	Expire(ctx context.Context, machine string, wait workflow.Wait) error
	DeclareLost(ctx context.Context, machine string, wait workflow.Wait, epoch int64, cause string) error
	ReportLate(ctx context.Context, machine string, wait workflow.Wait) error
	Hedge(ctx context.Context, machine string, wait workflow.Wait) error
}

// Presence knows how long agents are silent.
type Presence interface {
	Silence(machine string, epoch int64) time.Duration
}

// Checkpoints keep what the heads have counted.
type Checkpoints interface {
	// Load returns what all heads have saved.
	Load(ctx context.Context) (uptime.Checkpoint, error)
	// Save saves what this head has counted.
	Save(ctx context.Context, c uptime.Checkpoint) error
}

// Others are the other heads.
type Others interface {
	// Counted returns what they have counted, as far as they answer.
	Counted(ctx context.Context) uptime.Checkpoint
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
	Watches: []trivet.Kind{"Workflow", "Machine"},
	Input:   input,
	Workers: 2,
}

// input is what a run waits for, whether it is paused, and whether its machine waits for a BMC to be used.
func input(r trivet.Record) any {
	type input struct {
		wait   workflow.Wait
		paused bool
	}
	switch r := r.(type) {
	case *trivet.Workflow:
		wait, _, _ := workflow.CurrentWait(r)
		return input{wait, r.Status.Paused != nil}
	case *trivet.Machine:
		return workflow.PowerQueued(r)
	}
	return nil
}

// Config is what the controller needs.
type Config struct {
	Fleet    Fleet
	Presence Presence
	Clock    Clock
	Saved    Checkpoints
	Others   Others
	Learner  Learner // nil: nothing is learnt
	Tables   *state.Tables
	Log      *slog.Logger
	// Rank returns how many heads go before this one for a workflow.
	Rank func(workflow string) int
}

// Controller implements [reconcile.Controller]. Its keys are full names of workflows. It counts the time of each
// wait by the head's clock, as every head does, and goes on from what was saved of the wait (checkpoint.go). So a
// deadline expires after the death of any head, and never because heads were down or a clock jumped.
type Controller struct {
	Config
	mu     sync.Mutex
	timers map[string]*timer // guarded by mu; by workflow
	boots  map[string]*boot  // guarded by mu; by workflow
	// saved is what the heads had saved when this one read it last; nil: it has not yet. Guarded by mu.
	saved uptime.Checkpoint
	since int64 // the store's revision at that first read; guarded by mu
	// asked is the time that the clock had missed when the other heads were asked last. Used by Run only.
	asked time.Duration
}

// New returns the controller.
func New(cfg Config) *Controller {
	return &Controller{Config: cfg, timers: map[string]*timer{}, boots: map[string]*boot{}}
}

// timer counts one wait.
type timer struct {
	uptime.Timer
	wait    workflow.Wait
	id      uptime.WaitID
	machine string
	limit   time.Duration
	// measured: it is known whether how long it takes is measured.
	measured bool
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller]. Of the runs that have ended, those are among them that have a timer still.
func (c *Controller) Keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.Tables.Workflows.NotAtRest(), slices.Collect(maps.Keys(c.timers))...)
}

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string {
	if e.Kind == "Machine" {
		return queueEnded(e)
	}
	was, _ := e.Old().(*trivet.Workflow)
	if is, ok := e.Record().(*trivet.Workflow); ok {
		c.Fleet.Observe(was, is)
	}
	return []string{e.Name}
}

// queueEnded returns the run of a machine whose power command begins or ends to wait for a BMC.
func queueEnded(e *store.Event) []string {
	was, _ := e.Old().(*trivet.Machine)
	is, _ := e.Record().(*trivet.Machine)
	if was == nil || is == nil || is.Status.Workflow == "" || workflow.PowerQueued(was) == workflow.PowerQueued(is) {
		return nil
	}
	return []string{trivet.Resolve("", is.Status.Workflow)}
}

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
	clock := c.Clock.Read()
	c.measure(w, clock)
	wait, limit, ok := workflow.CurrentWait(w)
	if !ok || faultinject.DeadlineNever {
		c.learn(w)
		c.forget(name)
		return 0, nil
	}
	if faultinject.DeadlineEarly {
		limit /= 2
	}
	if !clock.Counting() || !c.loaded() {
		return uptime.Interval, nil
	}
	m, err := c.Tables.Machines.GetShared(w.Spec.Machine)
	if err != nil { // its deletion ends the run
		return 0, nil
	}
	queued := isQueued(w, wait, m)
	used := c.count(w.Spec.Machine, wait, limit, clock.Counted(), queued)
	switch {
	case w.Status.Paused != nil: // an agent that is lost meanwhile is found when the run is resumed
		return pausedInterval, nil
	case used >= limit:
		return time.Second, c.Fleet.Expire(ctx, w.Spec.Machine, wait)
	}
	c.begin(w, wait, clock)
	late, errLate := c.checkLate(ctx, w, wait, used)
	slow, errSlow := c.checkHedge(ctx, w, wait, used)
	silence, err := c.checkSilence(ctx, w, wait)
	if queued {
		silence = min(silence, queuedInterval)
	}
	return min(silence, late, slow, limit-used), errors.Join(err, errLate, errSlow)
}

// queuedInterval is how often a wait is checked that is queued for a BMC, pausedInterval one of a run that is paused.
// never is longer than any wait.
const (
	queuedInterval = 5 * time.Second
	pausedInterval = time.Hour
	never          = 24 * time.Hour
)

// isQueued reports whether the time of a wait does not count: the run is paused, or what it waits for has not begun, as
// its power command waits for a BMC.
func isQueued(w *trivet.Workflow, wait workflow.Wait, m *trivet.Machine) bool {
	return w.Status.Paused != nil ||
		(trivet.IsBootStep(wait.Step) || wait.Step == trivet.StepPowerOff) && workflow.PowerQueued(m)
}

// checkSilence declares the agent that the run depends on lost where it is silent for too long, and returns when to
// check again.
func (c *Controller) checkSilence(ctx context.Context, w *trivet.Workflow,
	wait workflow.Wait) (after time.Duration, err error) {
	epoch, ok := workflow.AwaitedAgent(w)
	if !ok {
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

// count returns how much of a wait is used at a counted time.
func (c *Controller) count(machine string, wait workflow.Wait, limit, now time.Duration, queued bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.timers[wait.Workflow]
	if !ok || t.wait != wait {
		t = &timer{wait: wait, id: wait.ID(), machine: machine, limit: limit}
		t.Timer = uptime.StartTimer(t.credit(c.saved), now)
		c.timers[wait.Workflow] = t
	}
	return t.Advance(now, queued)
}

func (c *Controller) forget(workflow string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.timers, workflow)
	delete(c.boots, workflow)
}
