package workflow

import (
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// StateInstalled ends a frozen run, or one that was just created, as an operator states after a recovery that its
// machine runs what it was to install. What is not known to be done is skipped.
func (r *Run) StateInstalled(note string) {
	if len(r.Status.Steps) == 0 {
		r.Status.Started = r.Now
		r.Status.Steps = []trivet.Step{{Name: trivet.StepFirstBoot, MaxAttempts: 1}}
	}
	for i := range r.Status.Steps {
		if s := &r.Status.Steps[i]; s.State != trivet.StepDone && s.State != trivet.StepSkipped {
			r.end(s, trivet.StepSkipped)
			s.Note = note
		}
	}
	r.Status.Frozen = false
	r.endAs(trivet.WorkflowSucceeded)
}

// ActedSince reports whether a run, the last one of its machine, has started an action there since a recovery, which
// was at a time. What the machine runs is known by that, unless the actions only test it. One that the recovery has
// frozen was started before.
func ActedSince(w *trivet.Workflow, at time.Time) bool {
	return w != nil && !w.Status.Frozen && !w.Spec.Release.IsCheck() &&
		slices.ContainsFunc(w.Status.Steps, func(s trivet.Step) bool {
			return !trivet.IsBootStep(s.Name) && s.State != trivet.StepSkipped && s.Started.After(at)
		})
}

// isStated reports whether a run that succeeded did so by an operator's statement. It shows nothing to work.
func isStated(s *trivet.WorkflowStatus) bool {
	n := len(s.Steps)
	return n > 0 && s.Steps[n-1].State == trivet.StepSkipped
}
