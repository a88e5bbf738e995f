package workflow

import (
	"time"

	"github.com/trivet-project/trivet"
)

// Wait identifies one attempt of one step, so that a deadline which is noticed late affects nothing else.
type Wait struct {
	Workflow string
	UID      string
	Step     string
	Attempt  int
	Resets   int
}

// CurrentWait returns what a run waits for now and how long it may take, as the heads count it; false where it waits
// for nothing.
func CurrentWait(w *trivet.Workflow) (wait Wait, limit time.Duration, ok bool) {
	step, limit, ok := Deadline(&w.Status)
	if !ok {
		return Wait{}, 0, false
	}
	return Wait{w.Name, w.UID, step.Name, step.Attempt, w.Status.Resets}, limit, true
}
