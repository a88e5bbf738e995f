package workflow

import (
	"fmt"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// A release is a run that Trivet makes itself. It stops the former system: by a power cycle into the installer where
// the disks are wiped, or else by powering the machine off. Its last step is that the machine is off: the BMC reports
// it, or, without a BMC, the installer's agent does it.

// Names of the actions of a release.
const (
	ReleaseWipeAction   = "wipe"
	ReleaseVerifyAction = "verify"
	releaseOffAction    = "poweroff"
)

// Times of a release.
const (
	wipeTimeout    = time.Hour // and what the largest disk needs to be overwritten
	maxWipeTimeout = 7 * 24 * time.Hour
	verifyTimeout  = 30 * time.Minute
	// byHandTimeout is how long a person has to boot a machine without a BMC from the network.
	byHandTimeout = time.Hour
	// slowestDisk is how fast disks are overwritten at least, in bytes per second.
	slowestDisk = 50e6
)

// ReleaseActions returns the actions of a release. inv is what is known of the machine's hardware; it may be nil.
func ReleaseActions(mode trivet.ReleaseMode, hasBMC bool, inv *trivet.Inventory) []trivet.Action {
	actions := []trivet.Action{}
	if mode == trivet.ReleaseWipe {
		all := map[string]any{"disk": "all"}
		actions = append(actions,
			trivet.Action{Name: ReleaseWipeAction, Use: "wipe", Timeout: eraseTimeout(inv), Retries: 2,
				Backoff: trivet.Duration(10 * time.Second), With: map[string]any{"disk": "all", "mode": "erase"}},
			trivet.Action{Name: ReleaseVerifyAction, Use: "verify", Timeout: trivet.Duration(verifyTimeout), Retries: 1,
				With: all})
	}
	if !hasBMC {
		actions = append(actions, trivet.Action{Name: releaseOffAction, Use: "poweroff"})
	}
	return actions
}

// eraseTimeout is how long it may take to overwrite all disks at the same time. Most disks are erased much faster.
func eraseTimeout(inv *trivet.Inventory) trivet.Duration {
	largest := int64(0)
	if inv != nil {
		for _, d := range inv.Disks {
			largest = max(largest, d.Bytes)
		}
	}
	overwrite := time.Duration(float64(largest) / slowestDisk * float64(time.Second)).Round(time.Minute)
	return trivet.Duration(min(wipeTimeout+overwrite, maxWipeTimeout))
}

// StartRelease sets the status of a release that has just been created, with its first step running.
func (r *Run) StartRelease(m Machine, limits ...map[string]trivet.Limit) {
	*r.Status = trivet.WorkflowStatus{State: trivet.WorkflowBooting, Started: r.Now}
	if len(r.Spec.Actions) > 0 {
		for _, name := range trivet.BootSteps[:len(trivet.BootSteps)-1] {
			r.Status.Steps = append(r.Status.Steps, bootStep(name, limits))
		}
	}
	for i := range r.Spec.Actions {
		r.Status.Steps = append(r.Status.Steps, actionStep(&r.Spec.Actions[i]))
	}
	if m.Power {
		r.Status.Steps = append(r.Status.Steps, bootStep(trivet.StepPowerOff, limits))
	}
	if len(r.Spec.Actions) == 0 {
		r.stop()
		return
	}
	if !m.Power && !m.AgentUp {
		dhcp := r.Status.Step(trivet.StepDHCP)
		dhcp.Timeout = max(dhcp.Timeout, trivet.Duration(byHandTimeout))
	}
	r.enter(m)
}

// isStop reports whether a step is that a release waits for the machine to be off.
func isStop(spec *trivet.WorkflowSpec, step string) bool {
	return spec.Release != "" && step == trivet.StepPowerOff && spec.Action(step) == nil
}

// stops reports whether the run ends when the BMC reports the machine off.
func (r *Run) stops() bool { return r.Spec.Release != "" && r.Status.Step(trivet.StepPowerOff) != nil }

// stop begins the last step of a release by a BMC.
func (r *Run) stop() {
	r.Status.State = trivet.WorkflowStopping
	r.begin(trivet.StepPowerOff, "waits for the BMC to power the machine off")
}

// Stopped records that nothing runs on the machine but an agent: it is off, or an agent is up in it. A release that
// waited for that has succeeded. It reports whether one did.
func (r *Run) Stopped(why string) bool {
	s := r.Status.Step(trivet.StepPowerOff)
	if r.Status.State != trivet.WorkflowStopping || s == nil {
		return false
	}
	r.end(s, trivet.StepDone)
	r.event(trivet.ReasonPoweredOff, s.Name, "nothing runs on the machine: %s", why)
	r.succeed()
	return true
}

// expireStop records that the BMC did not report the machine off in time.
func (r *Run) expireStop(step *trivet.Step) Remedy {
	cause := fmt.Sprintf("the BMC did not report the machine off within %s", step.Timeout)
	if step.Attempt >= step.MaxAttempts {
		r.fail(step, trivet.FaultMachine, cause)
		return Remedy{RaiseEpoch: true}
	}
	step.Cause = cause
	r.warn(trivet.ReasonDeadlineExceeded, step.Name, "attempt %d of %d: %s", step.Attempt, step.MaxAttempts, cause)
	step.Attempt++
	r.again(step)
	return Remedy{PowerOff: true}
}

// IsRelease reports whether a run releases its machine; w is nil where there is none.
func IsRelease(w *trivet.Workflow) bool { return w != nil && w.Spec.Release != "" }

// Released says what a release that succeeded has done, for people.
func Released(mode trivet.ReleaseMode) string {
	switch mode {
	case trivet.ReleaseWipe:
		return "its disks are wiped and verified"
	case trivet.ReleaseKeepData:
		return "its disks hold their data, and no selector chooses it"
	}
	return "its disks were not wiped"
}

// CheckRelease refuses the release of a machine that no one has accepted.
func CheckRelease(s *trivet.MachineStatus) error {
	if StateOf(s) == trivet.MachineDiscovered {
		return fmt.Errorf("%w: it is discovered and was never used; accept it first, with: trivet accept",
			trivet.ErrConflict)
	}
	return nil
}

// ReleaseName returns the name of a release of a machine, by a number. The name of a machine may be as long as that of
// a run.
func ReleaseName(machine string, number int64) string {
	suffix := fmt.Sprintf("-%d", number)
	const prefix = "release-"
	machine = machine[:min(len(machine), trivet.MaxName-len(prefix)-len(suffix))]
	return prefix + strings.TrimRight(machine, "-.:") + suffix
}
