package fleet

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/workflow"
)

// ReportLate records that what a run waits for is late, once for each attempt. It compares: a run that went on is left
// alone.
func (f *Fleet) ReportLate(ctx context.Context, machine string, wait workflow.Wait) error {
	return f.onMachine(ctx, "report late "+wait.Step, machine, func(t *transition) error {
		if t.workflow == nil || workflow.LateAfter(t.workflow) == 0 {
			return errUnchanged
		}
		if now, _, _ := workflow.CurrentWait(t.workflow); now != wait {
			return errUnchanged
		}
		t.run.ReportLate()
		return nil
	})
}

// Hedge asks for a second machine for the provision of a run that is slow, where it hedges and the run still waits.
func (f *Fleet) Hedge(ctx context.Context, machine string, wait workflow.Wait) error {
	return f.onMachine(ctx, "hedge "+wait.Step, machine, func(t *transition) error {
		if t.workflow == nil || workflow.HedgeAfter(t.workflow) == 0 {
			return errUnchanged
		}
		if now, _, _ := workflow.CurrentWait(t.workflow); now != wait {
			return errUnchanged
		}
		p, err := f.provisionOf(t)
		if err != nil {
			return err
		}
		if p == nil || !provision.MayHedge(p) {
			return errUnchanged
		}
		p.Status.Hedge = fmt.Sprintf("%s takes longer than %s, which 95%% of %d earlier ones took at most", wait.Step,
			workflow.HedgeAfter(t.workflow), t.workflow.Spec.StepTime(wait.Step).Runs)
		t.event(trivet.ReasonHedging, "%s: a second machine is to install provision %s", p.Status.Hedge, p.ShortName())
		return f.putProvision(t.tx, p)
	})
}
