package workflow

import (
	"time"

	"github.com/trivet-project/trivet"
)

// IntentTimeout is how long heads may act on a power intent after it was written. A command that was sent by then may
// take effect a little later.
const IntentTimeout = 90 * time.Second

// SameIntent reports whether two are one intent, whichever head holds it.
func SameIntent(a, b trivet.PowerIntent) bool { return a.Want == b.Want && a.Until.Equal(b.Until) }

// BootDevice returns what a machine with this run must boot from; w is nil where it has none.
func BootDevice(w *trivet.Workflow) string {
	if w != nil && WantsAgent(&w.Status) {
		return "network"
	}
	return "disk"
}

// AwaitsPower reports whether a run waits for its machine to be powered on or power-cycled; w is nil where there is none.
func AwaitsPower(w *trivet.Workflow) bool {
	if w == nil || w.Status.State.Ended() {
		return false
	}
	step := w.Status.Current()
	return step != nil && (step.Name == trivet.StepPowerOn || step.Name == trivet.StepFirstBoot)
}
