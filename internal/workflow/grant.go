package workflow

import "github.com/trivet-project/trivet"

// Grant grants the run to a new agent under a new epoch. What the last agent left unacknowledged starts again. It
// reports whether the run was available: not when it has ended, waits for the installed system, or is paused.
func (r *Run) Grant(epoch int64) bool {
	if !WantsAgent(r.Status) {
		return false
	}
	if r.Status.State == trivet.WorkflowRunning && !r.loseAgent("the machine booted again") {
		return false
	}
	if r.Status.Paused != nil {
		r.hold()
		return false
	}
	r.Status.Epoch, r.Status.Acked, r.Status.State = epoch, 0, trivet.WorkflowRunning
	if hello := r.Status.Step(trivet.StepHello); hello.State != trivet.StepDone {
		r.closeBefore(trivet.StepHello, trivet.StepDone)
		r.end(hello, trivet.StepDone)
	}
	next := r.nextAction()
	if next == nil { // every action was acknowledged by a run that ended before it recorded that
		r.finishActions()
		return false
	}
	r.event(trivet.ReasonGranted, next.Name, "an agent was granted the run under epoch %d", epoch)
	r.begin(next.Name, "")
	return true
}

// AgentReturned records a sync of the agent that holds the run. Where the agent was declared lost and no other one
// has replaced it, it continues the run. It reports whether that is so.
func (r *Run) AgentReturned() bool {
	if r.Status.State != trivet.WorkflowBooting || r.Status.Epoch == 0 || r.Status.Frozen {
		return false
	}
	r.closeBefore(trivet.StepHello, trivet.StepSkipped)
	r.end(r.Status.Step(trivet.StepHello), trivet.StepDone)
	r.Status.State = trivet.WorkflowRunning
	next := r.nextAction()
	r.event(trivet.ReasonAgentReturned, next.Name, "the agent has returned and continues")
	r.beginAction(next.Name)
	return true
}

// work returns the run as its agent gets it.
func work(w *trivet.Workflow) *trivet.Run {
	run := &trivet.Run{Workflow: w.ShortName(), UID: w.UID, Spec: w.Spec, Attempts: map[string]int{}}
	for i := range w.Spec.Actions {
		name := w.Spec.Actions[i].Name
		switch s := w.Status.Step(name); {
		case s == nil:
		case s.State == trivet.StepDone:
			run.Done = append(run.Done, name)
		case s.Failures > 0:
			run.Attempts[name] = s.Failures
		}
	}
	return run
}
