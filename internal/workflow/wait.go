package workflow

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/uptime"
)

// Wait identifies what a run waits for, so that a deadline which is noticed late affects nothing else. Each accepted
// report begins another one.
type Wait struct {
	Workflow string
	UID      string
	Step     string
	Attempt  int
	Resets   int
	Acked    int64
}

// ID returns the wait's identity in a checkpoint.
func (w Wait) ID() uptime.WaitID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %d %d", w.Workflow, w.UID, w.Step, w.Attempt, w.Resets, w.Acked))
	return uptime.WaitID(sum[:])
}

// CurrentWait returns what a run waits for now and how long it may take, as the heads count it; false where it waits
// for nothing.
func CurrentWait(w *trivet.Workflow) (wait Wait, limit time.Duration, ok bool) {
	s := &w.Status
	step := s.Current()
	if step == nil || s.State.Ended() || s.Frozen {
		return Wait{}, 0, false
	}
	return Wait{w.FullName(), w.UID, step.Name, step.Attempt, s.Resets, s.Acked}, limitOf(&w.Spec, step), true
}

// ActionGrace is how long after an action's timeout its agent may report that it was stopped, or after a backoff that
// the next attempt begins, before the heads act.
const ActionGrace = time.Minute

// limitOf returns how long the running step may take: a boot step its timeout; an action that of one attempt, or the
// backoff before the next one.
func limitOf(spec *trivet.WorkflowSpec, step *trivet.Step) time.Duration {
	switch {
	case trivet.IsBootStep(step.Name), isStop(spec, step.Name):
		return step.Timeout.D()
	case backsOff(step):
		return spec.Action(step.Name).BackoffAfter(step.Attempt).D() + ActionGrace
	}
	return step.Timeout.D() + ActionGrace
}

// backsOff reports whether the last attempt of an action failed and the next one has not begun.
func backsOff(step *trivet.Step) bool { return step.Attempt > 0 && step.Failures >= step.Attempt }
