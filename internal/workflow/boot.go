package workflow

import (
	"slices"

	"github.com/trivet-project/trivet"
)

// Seen notes that a machine was seen to reach a boot step: it asked for an address, fetched the script, fetched the
// kernel. It says whether anything changed; sightings are many and most say nothing new.
func (r *Run) Seen(step string) bool {
	current := r.Status.Current()
	if r.Status.State == trivet.WorkflowRunning && step == trivet.StepScript && current != nil {
		return r.restarted(step)
	}
	if r.Status.State != trivet.WorkflowBooting || current == nil || !isBefore(current.Name, step) && current.Name != step {
		return false
	}
	r.pass(step, trivet.StepDone)
	r.end(r.Status.Step(step), trivet.StepDone)
	r.tell("Seen", step, "the machine reached %s", step)
	r.begin(trivet.BootSteps[slices.Index(trivet.BootSteps, step)+1], "")
	return true
}

// restarted: a machine that fetches its boot script has lost its agent, whatever the agent had said.
func (r *Run) restarted(step string) bool {
	if r.lose("the machine was reset in the middle") {
		r.pass(step, trivet.StepDone)
		r.end(r.Status.Step(step), trivet.StepDone)
		r.begin(trivet.StepKernel, "")
	}
	return true
}

// isBefore compares two boot steps before the first boot; hello is reached by a grant only.
func isBefore(a, b string) bool {
	i, j := slices.Index(trivet.BootSteps, a), slices.Index(trivet.BootSteps, b)
	return i >= 0 && i < j && b != trivet.StepHello && b != trivet.StepFirstBoot
}

// PowerSet notes that the BMC says the machine is on.
func (r *Run) PowerSet() bool {
	s := r.Status.Step(trivet.StepPowerOn)
	if r.Status.State != trivet.WorkflowBooting || s == nil || s.State != trivet.StepRunning {
		return false
	}
	r.end(s, trivet.StepDone)
	r.tell("PoweredOn", s.Name, "the BMC powered the machine on")
	r.begin(trivet.StepDHCP, "")
	return true
}

// PhoneHome notes that the installed system is up: the end of the run.
func (r *Run) PhoneHome() bool {
	s := r.Status.Step(trivet.StepFirstBoot)
	if r.Status.State != trivet.WorkflowStarting || s == nil {
		return false
	}
	r.end(s, trivet.StepDone)
	r.tell("PhonedHome", s.Name, "the installed system is up")
	r.succeed()
	return true
}

// WantsAgent says whether the machine should netboot the installer for this run; otherwise it boots its disk.
func WantsAgent(s *trivet.WorkflowStatus) bool {
	return s.State == trivet.WorkflowBooting || s.State == trivet.WorkflowRunning
}
