package fleet

import (
	"context"

	"github.com/trivet-project/trivet/internal/workflow"
)

// Expire records that a wait exceeded its deadline. It compares: a run that went on is left alone.
func (f *Fleet) Expire(ctx context.Context, machine string, wait workflow.Wait) error {
	return f.onWait(ctx, "expire "+wait.Step, machine, wait, func(t *transition) {
		f.applyRemedy(t, t.run.Expire(t.ruleMachine()))
	})
}

// DeclareLost records that the agent of this epoch was silent for too long.
func (f *Fleet) DeclareLost(ctx context.Context, machine string, wait workflow.Wait, epoch int64, cause string) error {
	return f.onWait(ctx, "declare agent lost", machine, wait, func(t *transition) {
		if t.machine.Status.Epoch == epoch {
			f.applyRemedy(t, t.run.DeclareLost(t.ruleMachine(), cause))
		}
	})
}

// onWait runs a transition where the run still waits for the same.
func (f *Fleet) onWait(ctx context.Context, op, machine string, wait workflow.Wait, do func(*transition)) error {
	return f.onMachine(ctx, op, machine, func(t *transition) error {
		if t.workflow == nil || t.pause() != nil {
			return errUnchanged
		}
		if now, _, ok := workflow.CurrentWait(t.workflow); !ok || now != wait {
			return errUnchanged
		}
		do(t)
		return nil
	})
}

// applyRemedy writes what has to be done about the machine.
func (f *Fleet) applyRemedy(t *transition, r workflow.Remedy) {
	if t.workflow.Status.State.Ended() {
		return // finish raises the epoch
	}
	if r.RaiseEpoch {
		t.raiseEpoch()
	}
	if r.PowerCycle {
		f.setIntent(t, "cycle")
	}
	if r.PowerOff && t.machine.Spec.BMC != nil {
		f.setIntent(t, "off")
	}
}
