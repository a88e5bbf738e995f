package workflow

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Remedy is what has to be done about a machine after a deadline. It raises the machine's epoch, so that an agent
// which is still running is refused and stops.
type Remedy struct {
	RaiseEpoch bool
	PowerCycle bool
	PowerOff   bool
}

// Expire records that the running step exceeded its deadline.
func (r *Run) Expire(m Machine) Remedy {
	step := r.Status.Current()
	switch {
	case step == nil || r.Status.State.Ended():
		return Remedy{}
	case r.Status.State == trivet.WorkflowStopping:
		return r.expireStop(step)
	case !trivet.IsBootStep(step.Name):
		return r.DeclareLost(m, r.overdue(step))
	}
	cause := r.expired(step, step.Timeout.D())
	if step.Attempt >= step.MaxAttempts {
		r.fail(step, bootFault(step.Name), cause)
		return Remedy{RaiseEpoch: true}
	}
	step.Cause = cause
	r.warn(trivet.ReasonDeadlineExceeded, step.Name, "attempt %d of %d: %s", step.Attempt, step.MaxAttempts, cause)
	step.Attempt++
	return r.retryBoot(step, m)
}

// retryBoot starts another attempt, by a power cycle where there is a BMC.
func (r *Run) retryBoot(step *trivet.Step, m Machine) Remedy {
	r.again(step)
	if !m.Power {
		step.Note = "power-cycle the machine by hand: no BMC is configured"
		return Remedy{}
	}
	if step.Name == trivet.StepFirstBoot || step.Name == trivet.StepPowerOn {
		return Remedy{PowerCycle: true}
	}
	r.Status.Epoch = 0
	r.expectBoot(fmt.Sprintf("power-cycled for attempt %d of %s", step.Attempt, step.Name))
	return Remedy{RaiseEpoch: true, PowerCycle: true}
}

// DeclareLost records that the awaited agent is lost. The machine boots again, by a power cycle where there is a BMC,
// and the run continues after its last acknowledged report.
func (r *Run) DeclareLost(m Machine, cause string) Remedy {
	switch {
	case r.Status.State != trivet.WorkflowRunning || r.Status.Current() == nil:
		return Remedy{}
	case !r.loseAgent(cause):
		return Remedy{RaiseEpoch: true}
	}
	if !m.Power { // nothing is done to the machine, so its agent may return under its epoch
		r.Status.Current().Note = cause + "; power-cycle the machine by hand: no BMC is configured"
		return Remedy{}
	}
	r.Status.Epoch = 0
	return Remedy{RaiseEpoch: true, PowerCycle: true}
}

// loseAgent sends a run that lost its agent back to the boot steps, or fails it when that happened too often. It
// reports whether the run continues.
func (r *Run) loseAgent(cause string) bool {
	step := r.nextAction()
	if step == nil {
		return true
	}
	r.Status.Resets++
	if r.Status.Resets > r.MaxResets {
		if r.Status.Resets > 1 {
			cause = fmt.Sprintf("%s; the agent was lost %d times", cause, r.Status.Resets)
		}
		r.fail(step, trivet.FaultMachine, cause)
		return false
	}
	step.Cause = cause
	r.warn(trivet.ReasonAgentLost, step.Name, "%s (%d of %d)", cause, r.Status.Resets, r.MaxResets)
	r.expectBoot(cause)
	return true
}

// overdue says what the agent did not report.
func (r *Run) overdue(step *trivet.Step) string {
	what := fmt.Sprintf("end attempt %d of", step.Attempt)
	if backsOff(step) {
		what = fmt.Sprintf("begin attempt %d of", step.Attempt+1)
	}
	return fmt.Sprintf("the agent did not %s %s within %s and a grace period of a minute", what, step.Name,
		trivet.Duration(limitOf(r.Spec, step)-ActionGrace))
}

func (r *Run) expired(step *trivet.Step, limit time.Duration) string {
	switch step.Name {
	case trivet.StepPowerOn:
		return fmt.Sprintf("the BMC did not report the machine on within %s", limit)
	case trivet.StepDHCP:
		cause := fmt.Sprintf("no DHCP request from the machine within %s: check power, cable, and "+
			"that it boots from the network", limit)
		if lost := r.nextAction(); lost != nil && lost.Cause != "" {
			cause = fmt.Sprintf("%s during %s, and then %s", lost.Cause, lost.Name, cause)
		}
		return cause
	case trivet.StepScript:
		return fmt.Sprintf("the machine got an address but did not fetch its boot script within %s", limit)
	case trivet.StepKernel:
		return fmt.Sprintf("the machine has its boot script but did not fetch kernel and initramfs within %s", limit)
	case trivet.StepHello:
		return fmt.Sprintf("the installer was fetched but its agent sent no hello within %s: see the machine's console",
			limit)
	default:
		return fmt.Sprintf("the installed system did not phone home within %s: see the machine's console", limit)
	}
}

func bootFault(step string) trivet.FailureType {
	switch step {
	case trivet.StepFirstBoot:
		return trivet.FaultImage
	default:
		return trivet.FaultMachine
	}
}
