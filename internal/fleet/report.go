package fleet

import (
	"context"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Report applies an agent's reports under its epoch. Without reports it records that an agent which was declared lost
// has returned.
func (f *Fleet) Report(ctx context.Context, s *trivet.Sync) error {
	return f.onMachine(ctx, "report", s.Machine, func(t *transition) error {
		repeated, err := workflow.CheckReports(t.machine, t.workflow, s)
		if err != nil {
			return err
		}
		if repeated {
			return errUnchanged
		}
		acked, returned := t.workflow.Status.Acked, t.run.AgentReturned()
		if err := t.run.Apply(s.Reports); err != nil {
			return err
		}
		if !returned && acked == t.workflow.Status.Acked {
			return errUnchanged
		}
		return nil
	})
}

// RunOf returns the machine's run, as this head knows it; nil where it has none.
func (f *Fleet) RunOf(m *trivet.Machine) *trivet.Workflow {
	w, err := f.Workflows.GetShared(m.Status.Workflow)
	if err != nil {
		return nil
	}
	return w
}

// GrantedRun returns the run that the machine's agent holds, with the machine's network; nil where there is none.
func (f *Fleet) GrantedRun(m *trivet.Machine) *trivet.Run {
	w, err := f.Workflows.Get(m.Status.Workflow) // a copy, of which the response is made
	if err != nil {
		return nil
	}
	run := workflow.GrantedRun(m, w)
	if run == nil {
		return nil
	}
	if faultinject.ActionTwice {
		run.Done = nil
	}
	run.Network = f.network(m)
	return run
}
