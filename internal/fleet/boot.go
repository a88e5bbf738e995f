package fleet

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Seen notes that a machine was seen at a boot step. epoch is the machine's as the one who saw it knew it: a sighting that
// comes late, after the agent's hello, says nothing.
func (f *Fleet) Seen(ctx context.Context, machine, step string, epoch int64) error {
	return f.onMachine(ctx, "note "+step, machine, func(c *change) error {
		if c.run == nil || c.machine.Status.Epoch != epoch || !c.run.Seen(step) {
			return errUnchanged
		}
		return nil
	})
}

// PhoneHome notes that the installed system is up. The token is of this run if its epoch is above the claim's.
func (f *Fleet) PhoneHome(ctx context.Context, token auth.BootToken) error {
	return f.onMachine(ctx, "phone home", token.Machine, func(c *change) error {
		switch {
		case c.workflow == nil || token.Epoch <= c.workflow.Spec.Epoch || token.Epoch > c.machine.Status.Epoch:
			return fmt.Errorf("%w: the token is of another run", trivet.ErrFenced)
		case c.workflow.Status.State == trivet.WorkflowSucceeded:
			return errUnchanged
		case faultinject.RunStuck:
			return errUnchanged
		case !c.run.PhoneHome():
			return fmt.Errorf("%w: the run is %s; nobody waits for its first boot", trivet.ErrConflict, c.workflow.Status.State)
		}
		return nil
	})
}

// Wait identifies one wait for one step in one try, so that a deadline which fires late hits nothing else.
type Wait struct {
	Workflow string
	UID      string
	Step     string
	Try      int
	Resets   int
}

// WaitOf is what a run waits for now; false when for nothing.
func WaitOf(w *trivet.Workflow) (Wait, bool) {
	step := w.Status.Current()
	if step == nil || w.Status.State.Ended() {
		return Wait{}, false
	}
	return Wait{w.Name, w.UID, step.Name, step.Attempt, w.Status.Resets}, true
}

// Expire takes note that a wait's deadline has passed. It fires by compare: a run that went on is left alone.
func (f *Fleet) Expire(ctx context.Context, machine string, wait Wait) error {
	return f.onWait(ctx, "expire "+wait.Step, machine, wait, func(c *change) { f.remedy(c, c.run.Expire(c.mine())) })
}

// Lost takes note that the agent of this epoch is silent for too long.
func (f *Fleet) Lost(ctx context.Context, machine string, wait Wait, epoch int64, cause string) error {
	return f.onWait(ctx, "lose agent", machine, wait, func(c *change) {
		if c.machine.Status.Epoch == epoch {
			f.remedy(c, c.run.Lost(c.mine(), cause))
		}
	})
}

// Checkpoint keeps how much of a wait's time is used, so that a head which starts anew does not begin to count from zero.
func (f *Fleet) Checkpoint(ctx context.Context, machine string, wait Wait, elapsed trivet.Duration) error {
	return f.onWait(ctx, "checkpoint", machine, wait, func(c *change) {
		if s := c.workflow.Status.Current(); s.Elapsed < elapsed {
			s.Elapsed = elapsed
		}
	})
}

func (f *Fleet) onWait(ctx context.Context, op, machine string, wait Wait, do func(*change)) error {
	return f.onMachine(ctx, op, machine, func(c *change) error {
		if c.workflow == nil {
			return errUnchanged
		}
		if now, ok := WaitOf(c.workflow); !ok || now != wait {
			return errUnchanged
		}
		do(c)
		return nil
	})
}

// remedy writes what shall be done about the machine.
func (f *Fleet) remedy(c *change, r workflow.Remedy) {
	if c.workflow.Status.State.Ended() {
		return // settle raises the epoch
	}
	if r.RaiseEpoch {
		raise(c.machine)
	}
	if r.PowerCycle {
		f.intend(c, "cycle")
	}
}
