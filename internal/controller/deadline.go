package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/workflow"
)

// deadlines sees to it that no run waits for ever. It counts the time of each wait in which it could have ended, on top of
// what the record says was used before this head looked, so that a deadline fires after any head's death and never because
// the heads, or most of them, were away or a clock jumped.
//
// Reads: workflows, machines, the site, presence. Writes: workflows and machines, by fleet's Checkpoint, Expire and Lost.
type deadlines struct {
	fleet    *fleet.Fleet
	presence *presence.Tracker
	turn     turns
	up       *upTime
	mu       sync.Mutex
	waits    map[string]*clock // guarded by mu; by workflow
}

// clock counts one wait.
type clock struct {
	wait  fleet.Wait
	base  time.Duration // used before this head looked
	since time.Duration // of the up time
	saved time.Duration // what the record says
}

// maxUnsaved is how much of a wait may be forgotten when every head dies at once.
const maxUnsaved = 30 * time.Second

func (d *deadlines) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	w, err := d.fleet.Workflows.Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		d.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	step, limit, ok := workflow.Deadline(&w.Status)
	wait, waiting := fleet.WaitOf(w)
	if !ok || !waiting || faultinject.DeadlineNever {
		d.forget(name)
		return 0, nil
	}
	now, runs := d.up.now()
	if !runs {
		return lookEvery, nil
	}
	c := d.clockOf(wait, step.Elapsed.D(), limit, now)
	used := c.base + now - c.since
	if faultinject.DeadlineEarly {
		used *= 2
	}
	if used >= limit {
		return time.Second, d.fleet.Expire(ctx, w.Spec.Machine, wait)
	}
	patience, err := d.silence(ctx, w, wait)
	if err != nil {
		return 0, err
	}
	c.saved = max(c.saved, step.Elapsed.D()) // another head may have
	unsaved := min(maxUnsaved, limit/4+time.Second)
	unsaved += unsaved / 4 * time.Duration(d.turn.rank(name))
	if used-c.saved >= unsaved {
		if err := d.fleet.Checkpoint(ctx, w.Spec.Machine, wait, trivet.Duration(used)); err != nil {
			return 0, err
		}
		c.saved = used
	}
	return min(patience, limit-used, unsaved-(used-c.saved)), nil
}

// silence looks whether the agent that holds the run is still heard, and says when to look again.
func (d *deadlines) silence(ctx context.Context, w *trivet.Workflow, wait fleet.Wait) (time.Duration, error) {
	const never = 24 * time.Hour
	if w.Status.State != trivet.WorkflowRunning {
		return never, nil
	}
	allowed := d.fleet.AgentTimeout()
	silent := d.presence.Silence(w.Spec.Machine, w.Status.Epoch)
	if silent < allowed {
		return allowed - silent + time.Millisecond, nil
	}
	cause := fmt.Sprintf("the agent was silent for %s", silent.Round(time.Second))
	return time.Second, d.fleet.Lost(ctx, w.Spec.Machine, wait, w.Status.Epoch, cause)
}

// clockOf gives the clock of a wait. A head that finds one half through has just come, and lets agents find it first.
func (d *deadlines) clockOf(wait fleet.Wait, used, limit, now time.Duration) *clock {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, ok := d.waits[wait.Workflow]
	if !ok || c.wait != wait {
		c = &clock{wait: wait, base: min(used, limit-min(limit/4, retell)), since: now, saved: used}
		d.waits[wait.Workflow] = c
	}
	return c
}

func (d *deadlines) forget(workflow string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.waits, workflow)
}
