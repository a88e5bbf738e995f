package workflow

import (
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// ReachBootStep records that a machine reached a boot step: it asked for an address, fetched the script, fetched the
// kernel. It reports whether anything changed; most calls change nothing.
func (r *Run) ReachBootStep(step string) bool {
	current := r.Status.Current()
	if r.Status.Frozen {
		return false
	}
	if r.Status.State == trivet.WorkflowRunning && IsReset(step) {
		return r.restarted(step)
	}
	if r.Status.State != trivet.WorkflowBooting || current == nil || !isBefore(current.Name, step) &&
		current.Name != step {
		return false
	}
	r.closeBefore(step, trivet.StepDone)
	r.end(r.Status.Step(step), trivet.StepDone)
	r.event(trivet.ReasonBootStepReached, step, "the machine reached %s", step)
	r.begin(trivet.BootSteps[slices.Index(trivet.BootSteps, step)+1], "")
	return true
}

// IsReset reports whether a machine that reaches this step during a run was reset. (An agent may ask for an address.)
func IsReset(step string) bool { return step == trivet.StepScript || step == trivet.StepKernel }

// restarted handles a machine that boots during a run: it has lost its agent, whatever that one reported.
func (r *Run) restarted(step string) bool {
	if r.loseAgent("the machine was reset during the run") {
		r.closeBefore(step, trivet.StepDone)
		r.end(r.Status.Step(step), trivet.StepDone)
		r.begin(trivet.BootSteps[slices.Index(trivet.BootSteps, step)+1], "")
	}
	return true
}

// isBefore compares two boot steps before the first boot; hello is reached by a grant only.
func isBefore(a, b string) bool {
	i, j := slices.Index(trivet.BootSteps, a), slices.Index(trivet.BootSteps, b)
	return i >= 0 && i < j && b != trivet.StepHello && b != trivet.StepFirstBoot
}

// PowerSet records that the BMC reports the machine on.
func (r *Run) PowerSet() bool {
	s := r.Status.Step(trivet.StepPowerOn)
	if r.Status.State != trivet.WorkflowBooting || s == nil || s.State != trivet.StepRunning || r.Status.Frozen {
		return false
	}
	r.end(s, trivet.StepDone)
	r.event(trivet.ReasonPoweredOn, s.Name, "the BMC powered the machine on")
	r.begin(trivet.StepDHCP, "")
	return true
}

// PhoneHome records that the installed system is up, which ends the run, also a frozen one: the system was installed by
// it. It reports whether the run waited for that.
func (r *Run) PhoneHome(cloudErrors []string) bool {
	s := r.Status.Step(trivet.StepFirstBoot)
	if r.Status.State != trivet.WorkflowStarting || s == nil {
		return false
	}
	r.end(s, trivet.StepDone)
	r.Status.Frozen = false
	r.event(trivet.ReasonPhonedHome, s.Name, "the installed system is up")
	if len(cloudErrors) > 0 {
		text := "the first boot finished, and cloud-init reports: " + strings.Join(cloudErrors, "; ")
		s.Cause = strings.ToValidUTF8(text[:min(len(text), MaxCause)], "")
		r.warn(trivet.ReasonCloudInitFailed, s.Name, "%s", s.Cause)
	}
	r.succeed()
	return true
}

// WantsAgent reports whether the machine should netboot the installer for this run; otherwise it boots its disk. That
// is so for a frozen run, which may have installed it.
func WantsAgent(s *trivet.WorkflowStatus) bool {
	return !s.Frozen && (s.State == trivet.WorkflowBooting || s.State == trivet.WorkflowRunning)
}
