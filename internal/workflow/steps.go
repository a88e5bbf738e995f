package workflow

import (
	"github.com/trivet-project/trivet"
)

// Start makes the status of a run that has just been claimed, with its first step running.
func (r *Run) Start(m Machine, limits ...map[string]trivet.Limit) {
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
	if m.AgentUp {
		r.pass(trivet.StepHello, trivet.StepSkipped)
		r.begin(trivet.StepHello, "waits for the agent that is up to fetch its run")
		return
	}
	if m.Power {
		r.begin(trivet.StepPowerOn, "telling the BMC to power on")
		return
	}
	r.pass(trivet.StepDHCP, trivet.StepSkipped)
	r.begin(trivet.StepDHCP, "power the machine on, booting from the network: it has no BMC that Trivet could tell")
}

// endsInBoot: the last action leaves the installer for the installed system, whose phone-home ends the run.
func endsInBoot(spec *trivet.WorkflowSpec) bool {
	if len(spec.Actions) == 0 {
		return false
	}
	use := spec.Actions[len(spec.Actions)-1].Use
	return use == "reboot" || use == "kexec"
}

// losesMemory: after this action the agent is gone and, if actions remain, must boot and prove itself again.
func losesMemory(a *trivet.Action) bool {
	return a.Use == "reboot" || a.Use == "kexec" || a.Use == "poweroff"
}

// bootStep takes each bound from the first of limits that gives it: the template's, then the site's, then the default.
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
	step := trivet.Step{Name: a.Name, Timeout: a.Timeout, MaxAttempts: a.Retries + 1}
	if step.Timeout == 0 {
		step.Timeout = trivet.DefaultActionTimeout
	}
	return step
}

// begin makes a step the running one, in its first or next try.
func (r *Run) begin(name, note string) *trivet.Step {
	s := r.Status.Step(name)
	s.State, s.Elapsed, s.Note = trivet.StepRunning, 0, note
	s.Attempt = max(s.Attempt, 1)
	if s.Started.IsZero() {
		s.Started = r.Now
	}
	return s
}

// end closes a step.
func (r *Run) end(s *trivet.Step, state trivet.StepState) {
	s.State, s.Note = state, ""
	if s.Ended = r.Now; s.Started.IsZero() {
		s.Started = r.Now
	}
}

// pass closes every open step before name.
func (r *Run) pass(name string, as trivet.StepState) {
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

// reopen sets the boot steps from first up to and including last back to waiting; their tries stay counted.
func (r *Run) reopen(first, last string) {
	within := false
	for i := range r.Status.Steps {
		s := &r.Status.Steps[i]
		within = within || s.Name == first
		if within {
			s.State, s.Elapsed, s.Note = trivet.StepWaiting, 0, ""
		}
		if s.Name == last {
			return
		}
	}
}

// nextAction is the first action that is not done; nil when all are.
func (r *Run) nextAction() *trivet.Step {
	for i := range r.Spec.Actions {
		if s := r.Status.Step(r.Spec.Actions[i].Name); s.State != trivet.StepDone {
			return s
		}
	}
	return nil
}

// succeed ends the run well.
func (r *Run) succeed() {
	r.Status.State, r.Status.Ended = trivet.WorkflowSucceeded, r.Now
	r.tell("Succeeded", "", "all %d steps are done", len(r.Status.Steps))
}

// fail ends the run badly at a step.
func (r *Run) fail(s *trivet.Step, fault trivet.FailureType, cause string) {
	s.Cause = cause
	r.end(s, trivet.StepFailed)
	r.Status.State, r.Status.Ended = trivet.WorkflowFailed, r.Now
	r.Status.Failure = &trivet.Failure{Type: fault, Step: s.Name, Cause: cause}
	r.warn("Failed", s.Name, "%s (%s)", cause, fault)
}

// Cancel ends the run because somebody wants it no more.
func (r *Run) Cancel(why string) {
	if r.Status.State.Ended() {
		return
	}
	if s := r.Status.Current(); s != nil {
		r.end(s, trivet.StepSkipped)
	}
	r.Status.State, r.Status.Ended = trivet.WorkflowCancelled, r.Now
	r.tell("Cancelled", "", "%s", why)
}
