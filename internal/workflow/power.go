package workflow

import (
	"time"

	"github.com/trivet-project/trivet"
)

// IntentTimeout is how long a head may act on a power intent after it has read it. A command that was sent by then
// may take effect a little later.
const IntentTimeout = 90 * time.Second

// SameIntent reports whether two are one intent, whichever head holds it.
func SameIntent(a, b trivet.PowerIntent) bool { return a.Want == b.Want && a.Until.Equal(b.Until) }

// PowerQueued reports whether the machine waits until a head uses its BMC. That is not the machine's fault.
func PowerQueued(m *trivet.Machine) bool {
	return m.Spec.BMC != nil && m.Status.Intent != nil && m.Status.Intent.Held.IsZero()
}

// BootDevice returns what a machine with this run must boot from; w is nil where it has none.
func BootDevice(w *trivet.Workflow) string {
	if w != nil && WantsAgent(&w.Status) {
		return "network"
	}
	return "disk"
}
