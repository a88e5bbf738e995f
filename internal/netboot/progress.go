package netboot

import (
	"context"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// progress is a step that the boot of a machine reached. It may be lost: the next step of the boot implies it, and
// the agent's hello implies all of them.
type progress struct {
	machine string
	step    string
	epoch   int64
}

// reached queues the record of a step that a machine with a run reached, if the run does not know it yet.
func (s *Server) reached(h host, step string) {
	if h.machine != nil && h.workflow != nil && isProgress(h.workflow, step) {
		s.progress.Add(progress{machine: h.machine.Name, step: step, epoch: h.machine.Status.Epoch})
	}
}

func (s *Server) writeProgress(ctx context.Context, p progress) error {
	return s.StepReached(ctx, p.machine, p.step, p.epoch)
}

func (s *Server) dropProgress(p progress, err error) {
	s.metrics.dropped.Inc()
	s.log.Debug("boot progress was not recorded", "machine", p.machine, "step", p.step, "error", err)
}

// isProgress reports whether a step changes what the run knows: that the machine came closer to the agent's hello
// or, while an agent holds the run, that the machine began to boot again.
func isProgress(w *trivet.Workflow, step string) bool {
	switch w.Status.State {
	case trivet.WorkflowRunning:
		return workflow.IsReset(step)
	case trivet.WorkflowBooting:
		s := w.Status.Step(step)
		return s != nil && (s.State == trivet.StepWaiting || s.State == trivet.StepRunning)
	}
	return false
}
