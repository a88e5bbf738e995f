package workflow

import "github.com/trivet-project/trivet"

// Grant gives the run to a new agent under a new epoch. What the last agent left unacknowledged starts anew. It says
// whether the run is to be had: not when it has ended or waits for the installed system.
func (r *Run) Grant(epoch int64) bool {
	if !WantsAgent(r.Status) {
		return false
	}
	if r.Status.State == trivet.WorkflowRunning && !r.lose("the machine booted again") {
		return false
	}
	r.Status.Epoch, r.Status.Acked, r.Status.State = epoch, 0, trivet.WorkflowRunning
	if hello := r.Status.Step(trivet.StepHello); hello.State != trivet.StepDone {
		r.pass(trivet.StepHello, trivet.StepDone)
		r.end(hello, trivet.StepDone)
	}
	next := r.nextAction()
	if next == nil { // every action was acknowledged by a run that died before it said so
		r.finishActions()
		return false
	}
	r.tell("Granted", next.Name, "an agent was granted the run under epoch %d", epoch)
	r.begin(next.Name, "")
	return true
}

// Heard takes note of a word from the agent that holds the run. Where it was held for lost and nothing has replaced it, it
// has the run again.
func (r *Run) Heard() bool {
	if r.Status.State != trivet.WorkflowBooting || r.Status.Epoch == 0 {
		return false
	}
	r.pass(trivet.StepHello, trivet.StepSkipped)
	r.end(r.Status.Step(trivet.StepHello), trivet.StepDone)
	r.Status.State = trivet.WorkflowRunning
	next := r.nextAction()
	r.tell("AgentBack", next.Name, "the agent answers again and goes on")
	r.begin(next.Name, "")
	return true
}

// Work is what the agent is told to do.
func Work(w *trivet.Workflow) *trivet.Run {
	run := &trivet.Run{Workflow: w.Name, UID: w.UID, Spec: w.Spec, Attempts: map[string]int{}}
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
