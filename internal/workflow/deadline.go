package workflow

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Remedy is what shall be done about a machine after a deadline passed. Doing it raises the machine's epoch, so that an
// agent which is still alive somewhere is refused and stops.
type Remedy struct {
	RaiseEpoch bool
	PowerCycle bool
}

// ActionGrace is what an agent gets beyond an action's timeout to stop it and say so, before the heads step in.
const ActionGrace = time.Minute

// Deadline is how long the running step may take in this try, as the heads count it; false when no step runs.
func Deadline(s *trivet.WorkflowStatus) (step *trivet.Step, limit time.Duration, ok bool) {
	step = s.Current()
	if step == nil || s.State.Ended() {
		return nil, 0, false
	}
	limit = step.Timeout.D()
	if !trivet.IsBootStep(step.Name) {
		limit += ActionGrace
	}
	return step, limit, true
}

// Expire takes note that the running step's deadline has passed.
func (r *Run) Expire(m Machine) Remedy {
	step, limit, ok := Deadline(r.Status)
	if !ok {
		return Remedy{}
	}
	if !trivet.IsBootStep(step.Name) {
		return r.Lost(m, fmt.Sprintf("the agent did not end try %d of %s within %s and a minute's grace", step.Attempt, step.Name, step.Timeout))
	}
	cause := r.expired(step, limit)
	if step.Attempt >= step.MaxAttempts {
		r.fail(step, bootFault(step.Name), cause)
		return Remedy{RaiseEpoch: true}
	}
	step.Cause = cause
	r.warn("DeadlinePassed", step.Name, "try %d of %d: %s", step.Attempt, step.MaxAttempts, cause)
	step.Attempt++
	return r.retryBoot(step, m)
}

// retryBoot climbs the first rung: another try, by power where there is power.
func (r *Run) retryBoot(step *trivet.Step, m Machine) Remedy {
	step.Elapsed = 0
	if !m.Power {
		step.Note = "power-cycle the machine by hand: it has no BMC that Trivet could tell"
		return Remedy{}
	}
	if step.Name == trivet.StepFirstBoot || step.Name == trivet.StepPowerOn {
		return Remedy{PowerCycle: true}
	}
	r.Status.Epoch = 0
	r.expectBoot(fmt.Sprintf("power-cycled for try %d of %s", step.Attempt, step.Name))
	return Remedy{RaiseEpoch: true, PowerCycle: true}
}

// Lost takes note that the agent which holds the run is gone. The machine boots again, by power where there is power, and
// the run goes on where its last acknowledged report left it.
func (r *Run) Lost(m Machine, cause string) Remedy {
	if r.Status.State != trivet.WorkflowRunning || r.Status.Current() == nil {
		return Remedy{}
	}
	if !r.lose(cause) {
		return Remedy{RaiseEpoch: true}
	}
	if !m.Power { // nothing is done to the machine, so its agent may yet come back under its epoch
		r.Status.Current().Note = cause + "; power-cycle the machine by hand: it has no BMC that Trivet could tell"
		return Remedy{}
	}
	r.Status.Epoch = 0
	return Remedy{RaiseEpoch: true, PowerCycle: true}
}

// lose sends a run that lost its agent back to the boot, or ends it when that happened too often.
func (r *Run) lose(cause string) bool {
	step := r.nextAction()
	if step == nil {
		return true
	}
	r.Status.Resets++
	if r.Status.Resets > r.MaxResets {
		r.fail(step, trivet.FaultMachine, fmt.Sprintf("%s; the agent was lost %d times", cause, r.Status.Resets))
		return false
	}
	step.Cause = cause
	r.warn("AgentLost", step.Name, "%s (%d of %d)", cause, r.Status.Resets, r.MaxResets)
	r.expectBoot(cause)
	return true
}

func (r *Run) expired(step *trivet.Step, limit time.Duration) string {
	switch step.Name {
	case trivet.StepPowerOn:
		return fmt.Sprintf("the BMC did not report the machine on within %s", limit)
	case trivet.StepDHCP:
		cause := fmt.Sprintf("no DHCP request from the machine within %s: check power, cable, and that it boots from the network", limit)
		if lost := r.nextAction(); lost != nil && lost.Cause != "" {
			cause = fmt.Sprintf("%s during %s, and then %s", lost.Cause, lost.Name, cause)
		}
		return cause
	case trivet.StepScript:
		return fmt.Sprintf("the machine got an address but did not fetch its boot script within %s", limit)
	case trivet.StepKernel:
		return fmt.Sprintf("the machine has its boot script but did not fetch kernel and initramfs within %s", limit)
	case trivet.StepHello:
		return fmt.Sprintf("the installer was fetched but its agent did not say hello within %s: see the machine's console", limit)
	default:
		return fmt.Sprintf("the installed system did not phone home within %s: see the machine's console", limit)
	}
}

func bootFault(step string) trivet.FailureType {
	switch step {
	case trivet.StepScript, trivet.StepKernel:
		return trivet.FaultNetwork
	case trivet.StepFirstBoot:
		return trivet.FaultImage
	default:
		return trivet.FaultMachine
	}
}
