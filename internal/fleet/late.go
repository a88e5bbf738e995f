package fleet

import (
	"context"

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
