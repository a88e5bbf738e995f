package cli

import (
	"testing"

	"github.com/trivet-project/trivet"
)

func TestStepLineCountsAttempts(t *testing.T) {
	for attempt, want := range map[int]string{
		0: "write: failed after 1 attempt: no disk", 1: "write: failed after 1 attempt: no disk",
		3: "write: failed after 3 attempts: no disk",
	} {
		step := trivet.Step{Name: "write", State: trivet.StepFailed, Attempt: attempt, Cause: "no disk"}
		if got := stepLine(step, nil); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}
