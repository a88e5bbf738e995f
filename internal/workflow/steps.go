package workflow

import (
	"time"

	"github.com/trivet-project/trivet"
)

// Start sets the status of a run that has just been created, with its first step running. Steps that its status has
// already were done before: see [Continue].
func (r *Run) Start(m Machine, limits ...map[string]trivet.Limit) {
	done := r.Status.Steps
	*r.Status = trivet.WorkflowStatus{State: trivet.WorkflowBooting, Started: r.Now}
	for _, name := range trivet.BootSteps[:len(trivet.BootSteps)-1] {
		r.Status.Steps = append(r.Status.Steps, bootStep(name, limits))
	}
	for i := range r.Spec.Actions {
		r.Status.Steps = append(r.Status.Steps, actionStep(&r.Spec.Actions[i]))
	}
	if endsInBoot(r.Spec) {
		r.Status.Steps = append(r.Status.Steps, bootStep(trivet.StepFirstBoot, limits))
	}
	keepDone(r.Status.Steps, done)
	r.enter(m)
}

// enter begins the first step of a run that needs an agent.
func (r *Run) enter(m Machine) {
	if m.AgentUp { // the caller grants it the run
		r.closeBefore(trivet.StepHello, trivet.StepSkipped)
		r.begin(trivet.StepHello, "")
		return
	}
	if m.Power {
		r.begin(trivet.StepPowerOn, "waits for the BMC to power the machine on")
		return
	}
	r.closeBefore(trivet.StepDHCP, trivet.StepSkipped)
	r.begin(trivet.StepDHCP, "power the machine on by hand, to boot from the network: no BMC is configured")
}

// endsInBoot reports whether the last action leaves the installer for the installed system, whose phone-home ends the
// run.
func endsInBoot(spec *trivet.WorkflowSpec) bool {
	if len(spec.Actions) == 0 {
		return false
	}
	use := spec.Actions[len(spec.Actions)-1].Use
	return use == "reboot" || use == "kexec"
}

// PoweredOff reports whether a run that succeeded left its machine powered off.
func PoweredOff(w *trivet.Workflow) bool {
	n := len(w.Spec.Actions)
	return w.Status.State == trivet.WorkflowSucceeded && n > 0 && w.Spec.Actions[n-1].Use == "poweroff"
}

// losesMemory reports whether the agent is gone after this action and, if actions remain, must boot and register
// again.
func losesMemory(a *trivet.Action) bool {
	return a.Use == "reboot" || a.Use == "kexec" || a.Use == "poweroff"
}

// bootStep sets each bound from the first of limits that has it: the template's, then the site's, then the default.
func bootStep(name string, limits []map[string]trivet.Limit) trivet.Step {
	step := trivet.Step{Name: name}
	for _, of := range append(limits, trivet.DefaultLimits) {
		l := of[name]
		if step.Timeout == 0 {
			step.Timeout = l.Timeout
		}
		if step.MaxAttempts == 0 && l.Retries != nil {
			step.MaxAttempts = *l.Retries + 1
		}
	}
	return step
}

func actionStep(a *trivet.Action) trivet.Step {
	return trivet.Step{Name: a.Name, Timeout: a.TimeoutOrDefault(), MaxAttempts: a.Retries + 1}
}

// begin makes a step the running one, in its first or next attempt.
func (r *Run) begin(name, note string) *trivet.Step {
	s := r.Status.Step(name)
	s.State, s.Note = trivet.StepRunning, note
	s.Attempt = max(s.Attempt, 1)
	r.restart(s)
	return s
}

// restart sets the time of a running step to that of an attempt that begins, or of the backoff before it.
func (r *Run) restart(s *trivet.Step) { s.Elapsed, s.Started, s.Ended = 0, r.Now, time.Time{} }

// again restarts a step for another attempt, or for the backoff before it.
func (r *Run) again(s *trivet.Step) {
	if s.First.IsZero() {
		s.First = s.Started
	}
	r.restart(s)
}

// end closes a step.
func (r *Run) end(s *trivet.Step, state trivet.StepState) {
	if state == trivet.StepDone {
		s.First = time.Time{} // where the machine boots again, the step begins again
	}
	s.State, s.Note = state, ""
	if s.Ended = r.Now; s.Started.IsZero() {
		s.Started = r.Now
	}
}

// closeBefore ends every open step before name.
func (r *Run) closeBefore(name string, as trivet.StepState) {
	for i := range r.Status.Steps {
		s := &r.Status.Steps[i]
		if s.Name == name {
			return
		}
		if s.State == trivet.StepWaiting || s.State == trivet.StepRunning {
			r.end(s, as)
		}
	}
}

// setWaiting sets a step back to one that has not begun; its attempts stay counted.
func setWaiting(s *trivet.Step) {
	s.State, s.Elapsed, s.Note, s.Started, s.Ended = trivet.StepWaiting, 0, "", time.Time{}, time.Time{}
}

// reopen sets the boot steps from first to last back to waiting; their attempts stay counted.
func (r *Run) reopen(first, last string) {
	within := false
	for i := range r.Status.Steps {
		s := &r.Status.Steps[i]
		within = within || s.Name == first
		if within {
			setWaiting(s)
		}
		if s.Name == last {
			return
		}
	}
}

// nextAction returns the first action that is not done; nil when all are.
func (r *Run) nextAction() *trivet.Step {
	for i := range r.Spec.Actions {
		if s := r.Status.Step(r.Spec.Actions[i].Name); s.State != trivet.StepDone {
			return s
		}
	}
	return nil
}

// endAs ends the run, also one that is paused.
func (r *Run) endAs(state trivet.WorkflowState) {
	r.Status.State, r.Status.Ended, r.Status.Paused = state, r.Now, nil
	for i := range r.Status.Steps {
		if s := &r.Status.Steps[i]; s.Note == notePaused {
			s.Note = ""
		}
	}
}

// succeed ends the run successfully.
func (r *Run) succeed() {
	r.endAs(trivet.WorkflowSucceeded)
	r.event(trivet.ReasonSucceeded, "", "all %d steps are done", len(r.Status.Steps))
}

// fail ends the run at a step that failed.
func (r *Run) fail(s *trivet.Step, fault trivet.FailureType, cause string) {
	s.Cause = cause
	r.end(s, trivet.StepFailed)
	r.endAs(trivet.WorkflowFailed)
	r.Status.Failure = &trivet.Failure{Type: fault, Step: s.Name, Cause: cause}
	r.warn(trivet.ReasonFailed, s.Name, "%s (%s)", cause, fault)
}

// Cancel ends the run where it has not ended yet.
func (r *Run) Cancel(why string) {
	if r.Status.State.Ended() {
		return
	}
	if s := r.Status.Current(); s != nil {
		r.end(s, trivet.StepCancelled)
	}
	r.endAs(trivet.WorkflowCancelled)
	r.event(trivet.ReasonCancelled, "", "%s", why)
}
