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
}

// ActionGrace is how long after an action's timeout its agent may report that it was stopped, before the heads act.
const ActionGrace = time.Minute

// Deadline returns how long this attempt of the running step may take, as the heads count it; false when no step
// runs.
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

// Expire records that the running step exceeded its deadline.
func (r *Run) Expire(m Machine) Remedy {
	step, limit, ok := Deadline(r.Status)
	if !ok {
		return Remedy{}
	}
	if !trivet.IsBootStep(step.Name) {
		return r.DeclareLost(m, fmt.Sprintf("the agent did not end attempt %d of %s within %s "+
			"and a grace period of a minute", step.Attempt, step.Name, step.Timeout))
	}
	cause := r.expired(step, limit)
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
	step.Elapsed = 0
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

// DeclareLost records that the agent which holds the run is lost. The machine boots again, by a power cycle where
// there is a BMC, and the run goes on after its last acknowledged report.
func (r *Run) DeclareLost(m Machine, cause string) Remedy {
	if r.Status.State != trivet.WorkflowRunning || r.Status.Current() == nil {
		return Remedy{}
	}
	if !r.loseAgent(cause) {
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
// reports whether the run goes on.
func (r *Run) loseAgent(cause string) bool {
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
	r.warn(trivet.ReasonAgentLost, step.Name, "%s (%d of %d)", cause, r.Status.Resets, r.MaxResets)
	r.expectBoot(cause)
	return true
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
	case trivet.StepScript, trivet.StepKernel:
		return trivet.FaultNetwork
	case trivet.StepFirstBoot:
		return trivet.FaultImage
	default:
		return trivet.FaultMachine
	}
}
