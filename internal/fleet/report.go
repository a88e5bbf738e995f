package fleet

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Report applies an agent's reports under its epoch: all of them, or the first ones where a transaction does not hold
// the events of all. The agent sends those again that were not acknowledged. Without reports it records that an agent
// which was declared lost has returned. It fails with ErrTooOften where the machine's agents have written too much.
func (f *Fleet) Report(ctx context.Context, s *trivet.Sync) error {
	if !f.reports.allow(s.Machine, f.now()) {
		return &trivet.Error{Op: "report", Kind: "Machine", Name: s.Machine, Err: ErrTooOften}
	}
	for most := len(s.Reports); ; most /= 2 {
		err := f.report(ctx, s, most)
		if most <= 1 || !errors.Is(err, trivet.ErrTooLarge) {
			return err
		}
	}
}

// report applies at most so many reports that are not acknowledged yet.
func (f *Fleet) report(ctx context.Context, s *trivet.Sync, most int) error {
	return f.onMachine(ctx, "report", s.Machine, func(t *transition) error {
		repeated, err := workflow.CheckReports(t.machine, t.workflow, s)
		if err != nil {
			return err
		}
		if repeated {
			return errUnchanged
		}
		acked, returned := t.workflow.Status.Acked, t.run.AgentReturned()
		if err := t.run.Apply(s.Reports, most); err != nil {
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
	w, err := f.Workflows.GetShared(trivet.Resolve("", m.Status.Workflow))
	if err != nil {
		return nil
	}
	return w
}

// GrantedRun returns the run that the machine's agent holds, with the machine's network; nil where there is none.
func (f *Fleet) GrantedRun(m *trivet.Machine) *trivet.Run {
	w, err := f.Workflows.Get(trivet.Resolve("", m.Status.Workflow)) // a copy, of which the response is made
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
	site := f.site()
	if p, err := f.Platforms.GetShared(site.PlatformOf(m)); err == nil {
		initrd, _ := p.Initrd()
		run.Initrd = &initrd
	}
	if len(run.Spec.Seed.Interfaces) > 0 {
		run.Spec.Seed.NetworkData = networkConfig(m, run.Spec.Seed.Interfaces, run.Network)
	}
	return run
}
