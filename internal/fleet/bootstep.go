package fleet

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/faultinject"
)

// ReachBootStep records that a machine reached a boot step. epoch is the machine's as it was when the step was
// observed: what is recorded late, after the agent's hello, changes nothing.
func (f *Fleet) ReachBootStep(ctx context.Context, machine, step string, epoch int64) error {
	return f.onMachine(ctx, "record "+step, machine, func(t *transition) error {
		switch {
		case t.run == nil || t.machine.Status.Epoch != epoch:
			return errUnchanged
		case f.isAgentAtWork(t):
			return t.warnOnce(trivet.ReasonUnexpectedBoot, "the machine's boot script was fetched while its agent was "+
				"at work: the machine was just reset, or another host uses its address")
		case !t.run.ReachBootStep(step):
			return errUnchanged
		}
		return nil
	})
}

// PhoneHome records that the installed system is up. The token must be of this run, and of the epoch that wrote the
// seed: others may be on a disk that the run has written again since.
func (f *Fleet) PhoneHome(ctx context.Context, token auth.BootToken, cloudErrors []string) error {
	return f.onMachine(ctx, "phone home", token.Machine, func(t *transition) error {
		switch {
		case t.workflow == nil || token.Run != t.workflow.UID || token.Epoch != t.workflow.Status.SeedEpoch:
			return fmt.Errorf("%w: the token is not of the seed that the machine's run wrote", trivet.ErrFenced)
		case t.workflow.Status.State == trivet.WorkflowSucceeded:
			return errUnchanged
		case faultinject.RunStuck:
			return errUnchanged
		case !t.run.PhoneHome(cloudErrors):
			return fmt.Errorf("%w: the run is %s and does not wait for its first boot", trivet.ErrConflict,
				t.workflow.Status.State)
		}
		return nil
	})
}
