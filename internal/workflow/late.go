package workflow

import (
	"time"

	"github.com/trivet-project/trivet"
)

// LateAfter returns after how long the running attempt of a run's step is late; 0 where that is not known, or was
// reported.
func LateAfter(w *trivet.Workflow) time.Duration {
	step := w.Status.Current()
	if step == nil || w.Status.State.Ended() || step.Late >= max(1, step.Attempt) || waitsToRetry(step) {
		return 0
	}
	if t := w.Spec.StepTime(step.Name); t != nil {
		return t.Late.D()
	}
	return 0
}

// HedgeAfter returns after how long the running attempt of a run's step is slow: 95 % of the earlier ones took at most
// that. It is 0 where too few are known.
func HedgeAfter(w *trivet.Workflow) time.Duration {
	step := w.Status.Current()
	if step == nil || w.Status.State.Ended() || waitsToRetry(step) {
		return 0
	}
	if t := w.Spec.StepTime(step.Name); t != nil && t.Runs >= trivet.MinHedgeRuns {
		return t.P95.D()
	}
	return 0
}

// waitsToRetry reports whether an action is between two attempts.
func waitsToRetry(step *trivet.Step) bool { return !trivet.IsBootStep(step.Name) && backsOff(step) }

// ReportLate records that the running step is late. It goes on: only its deadline fails it.
func (r *Run) ReportLate() {
	step := r.Status.Current()
	t := r.Spec.StepTime(step.Name)
	step.Late = max(1, step.Attempt)
	r.warn(trivet.ReasonStepLate, step.Name, "attempt %d of %d takes longer than %s, which 99.9%% of %d earlier ones on "+
		"machines of this model took at most; its deadline is after %s", step.Late, step.MaxAttempts, t.Late.D(), t.Runs,
		step.Timeout.D())
}
