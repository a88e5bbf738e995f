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
	testTimeout    = 2 * time.Hour // and what the memory needs, or the largest disk, where all of it is tested
	maxTestTimeout = 30 * 24 * time.Hour
	// byHandTimeout is how long a person has to boot a machine without a BMC from the network.
	byHandTimeout = time.Hour
	// slowestDisk is how fast disks are read and written at least, in bytes per second.
	slowestDisk = 50e6
	// slowestMemory is how fast memory is written and read at least by a test, in bytes per second, and memoryPasses how
	// often half of it is.
	slowestMemory, memoryPasses = 500e6, 12
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
	if mode.IsCheck() {
		actions = append(actions, testActions(mode == trivet.ReleaseCheckAll, inv)...)
	}
	if !hasBMC {
		actions = append(actions, trivet.Action{Name: releaseOffAction, Use: "poweroff"})
	}
	return actions
}

// testActions are those of a check: of the memory, of all disks, of the network. What is on the disks stays. full: every
// byte of the disks.
func testActions(full bool, inv *trivet.Inventory) []trivet.Action {
	return []trivet.Action{
		{Name: "test-memory", Use: "test-memory", Timeout: memoryTimeout(inv)},
		{Name: "test-disk", Use: "test-disk", Timeout: diskTimeout(inv, full),
			With: map[string]any{"disk": "all", "mode": "rewrite", "full": full}},
		{Name: "test-network", Use: "test-network", Retries: 1, Backoff: trivet.Duration(10 * time.Second)},
	}
}

// eraseTimeout is how long it may take to overwrite all disks at the same time. Most disks are erased much faster.
func eraseTimeout(inv *trivet.Inventory) trivet.Duration {
	return trivet.Duration(min(wipeTimeout+passOf(inv), maxWipeTimeout))
}

// memoryTimeout is how long it may take to test half of the memory.
func memoryTimeout(inv *trivet.Inventory) trivet.Duration {
	timeout := testTimeout
	if inv != nil {
		bytes := float64(inv.MemoryMB) * (1 << 20) / 2 * memoryPasses
		timeout += time.Duration(bytes / slowestMemory * float64(time.Second)).Round(time.Minute)
	}
	return trivet.Duration(min(timeout, maxTestTimeout))
}

// diskTimeout is how long it may take to test all disks at the same time: a disk that is tested as a whole is read three
// times, and written once.
func diskTimeout(inv *trivet.Inventory, full bool) trivet.Duration {
	timeout := testTimeout
	if full {
		timeout += 4 * passOf(inv)
	}
	return trivet.Duration(min(timeout, maxTestTimeout))
}

// passOf is how long it may take to read or write the largest disk once.
func passOf(inv *trivet.Inventory) time.Duration {
	largest := int64(0)
	if inv != nil {
		for _, d := range inv.Disks {
			largest = max(largest, d.Bytes)
		}
	}
	return time.Duration(float64(largest) / slowestDisk * float64(time.Second)).Round(time.Minute)
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
	case trivet.ReleaseCheck, trivet.ReleaseCheckAll:
		return "the test of its hardware has found nothing; its disks were not changed"
	}
	return "its disks were not wiped"
}

// WipeFailed reports whether a run was to wipe its machine's disks, and has not; w is nil where there is none.
func WipeFailed(w *trivet.Workflow) bool {
	return w != nil && w.Spec.Release == trivet.ReleaseWipe && w.Status.State.Ended() &&
		w.Status.State != trivet.WorkflowSucceeded
}

// FoundFault reports whether a check that failed has found that the machine is at fault: not the installer OS, the
// network, a head, the BMC that does not power off what was tested, or, without one, the person who did not boot it.
func FoundFault(w *trivet.Workflow, hasBMC bool) bool {
	f := w.Status.Failure
	if f == nil || f.Type != trivet.FaultMachine || f.Step == trivet.StepPowerOff {
		return false
	}
	return hasBMC || !trivet.IsBootStep(f.Step)
}

// CheckRelease refuses the release of a machine that no one has accepted, and the check of one that is in use.
func CheckRelease(s *trivet.MachineStatus, mode trivet.ReleaseMode) error {
	state := StateOf(s)
	if state == trivet.MachineDiscovered {
		return fmt.Errorf("%w: it is discovered and was never used; accept it first, with: trivet accept",
			trivet.ErrConflict)
	}
	if mode.IsCheck() && s.State != trivet.MachineAvailable &&
		(s.State != trivet.MachineQuarantined || state != trivet.MachineAvailable && state != trivet.MachineReleasing) {
		text := string(state)
		if s.State != state {
			text = fmt.Sprintf("in quarantine, and was %s before", state)
		}
		return fmt.Errorf("%w: it is %s: only a machine that is available, or in quarantine and not in use, is checked; "+
			"release it first, with: trivet release", trivet.ErrConflict, text)
	}
	return nil
}

// ReleaseName returns the name of a release of a machine, by a number. The name of a machine may be as long as that of
// a run.
func ReleaseName(mode trivet.ReleaseMode, machine string, number int64) string {
	prefix, suffix := "release-", fmt.Sprintf("-%d", number)
	if mode.IsCheck() {
		prefix = "check-"
	}
	machine = machine[:min(len(machine), trivet.MaxName-len(prefix)-len(suffix))]
	return prefix + strings.TrimRight(machine, "-.:") + suffix
}
