package workflow

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// IntentTimeout is how long heads may act on a power intent after it was written. A command that was sent by then may
// take effect a little later.
const IntentTimeout = 90 * time.Second

// SameIntent reports whether two are one intent, whichever head holds it.
func SameIntent(a, b trivet.PowerIntent) bool { return a.Want == b.Want && a.Until.Equal(b.Until) }

// PowerQueued reports whether the machine waits until a head uses its BMC. That is not the machine's fault.
func PowerQueued(m *trivet.Machine) bool {
	return m.Spec.BMC != nil && m.Status.Intent != nil && m.Status.Intent.Held.IsZero()
}

// BootDevice returns what a machine with this run must boot from; w is nil where it has none.
func BootDevice(w *trivet.Workflow) string {
	if w != nil && (WantsAgent(&w.Status) || w.Spec.Release != "") { // what a released machine ran never starts again
		return "network"
	}
	return "disk"
}

// WantedPower returns the power request that a machine needs by what is recorded of it and of its run, which is nil where
// it has none: "cycle" for a run that waits for a boot, "off" for a former system that may still run, or "".
func WantedPower(s *trivet.MachineStatus, w *trivet.Workflow) string {
	if w != nil && !w.Status.State.Ended() {
		step := w.Status.Current()
		if step != nil && !w.Status.Frozen && (step.Name == trivet.StepPowerOn || step.Name == trivet.StepFirstBoot) {
			return "cycle"
		}
		if w.Status.State == trivet.WorkflowStopping {
			return "off"
		}
		return ""
	}
	if StateOf(s) == trivet.MachineReleasing {
		return "off"
	}
	return ""
}

// RequestedPower decides about a power state that an operator requests. It returns what the machine must boot from
// then, or ErrConflict where the request would harm: a run is disturbed only by force, and what a released machine ran
// is not started again. w is the machine's run; nil where it has none that goes on.
func RequestedPower(m *trivet.Machine, w *trivet.Workflow, req trivet.PowerRequest) (boot string, err error) {
	state := StateOf(&m.Status)
	switch {
	case m.Spec.BMC == nil:
		return "", fmt.Errorf("%w: it has no BMC (spec.bmc): power it by hand", trivet.ErrConflict)
	case w != nil && !req.Force && w.Spec.Release != "":
		return "", fmt.Errorf("%w: it is released by run %s; add --force to power it nevertheless, or quarantine it, "+
			"which cancels the release", trivet.ErrConflict, w.ShortName())
	case w != nil && !req.Force:
		return "", fmt.Errorf("%w: it is at work in run %s; add --force to power it nevertheless, or delete "+
			"provision %s", trivet.ErrConflict, w.ShortName(), w.Spec.Provision)
	case state == trivet.MachineReleasing && req.Want != trivet.PowerOff:
		return "", fmt.Errorf("%w: its former system may still run, and must not be started again; power it off first",
			trivet.ErrConflict)
	case w != nil:
		return BootDevice(w), nil
	case state == trivet.MachineActive || state == trivet.MachineReleasing || state == trivet.MachineUnverified:
		return "disk", nil
	}
	return "network", nil // what is on its disk is of no one
}
