package workflow

import (
	"fmt"

	"github.com/trivet-project/trivet"
)

// A run that is paused starts no further action. What is in progress goes on: an attempt of an action, a boot of the
// machine. No deadline counts and no power request is made. An agent that registers meanwhile is granted the run when
// it is resumed, and the one that holds the run learns it from the response to its next sync.

// Notes of steps of a run that is paused.
const (
	notePaused = "paused: it begins when the run is resumed"
	noteHeld   = "paused: an agent is up, and is granted the run when that is resumed"
)

// CheckPause refuses to pause a run whose agent would not know, and go on.
func CheckPause(m *trivet.Machine, w *trivet.Workflow) error {
	held := WantsAgent(&w.Status) && w.Status.Epoch != 0 // also by one that was lost, and may return
	if !held || m.Status.AgentRelease.Compare(trivet.PauseRelease) >= 0 {
		return nil
	}
	return &trivet.Error{Op: "pause", Kind: "Workflow", Name: w.ShortName(),
		Err: fmt.Errorf("%w: the agent on %s has an earlier release than %s, and would not pause",
			trivet.ErrConflict, m.Name, trivet.PauseRelease),
		Hint: "let it end, or delete its provision; for later runs, import the platform of this release"}
}

// Pause pauses a run that has not ended. power is the request to the BMC that the machine waits for.
func (r *Run) Pause(by, power string) {
	r.Status.Paused = &trivet.Pause{By: by, Since: r.Now, Power: power}
	r.event(trivet.ReasonPaused, r.currentStep(), "paused by %s: no further action is started", by)
}

// Resume resumes a run, and returns the power request to make.
func (r *Run) Resume(by string) (power string) {
	power = r.Status.Paused.Power
	r.Status.Paused = nil
	switch s := r.Status.Current(); {
	case s != nil && s.Note == noteHeld:
		s.Note = ""
	case s == nil && r.Status.State == trivet.WorkflowRunning:
		r.beginAction(r.nextAction().Name)
	}
	r.event(trivet.ReasonResumed, r.currentStep(), "resumed by %s", by)
	return power
}

func (r *Run) currentStep() string {
	if s := r.Status.Current(); s != nil {
		return s.Name
	}
	return ""
}

// beginAction begins the next action, or leaves it waiting while the run is paused.
func (r *Run) beginAction(name string) {
	if r.Status.Paused != nil {
		r.Status.Step(name).Note = notePaused
		return
	}
	r.begin(name, "")
}

// hold keeps an agent that has registered waiting until the run is resumed.
func (r *Run) hold() {
	r.Status.Epoch = 0
	r.closeBefore(trivet.StepHello, trivet.StepDone)
	r.begin(trivet.StepHello, noteHeld)
}

// IsPaused reports whether the run that the machine's agent holds is paused, also where the agent was declared lost.
func IsPaused(m *trivet.Machine, w *trivet.Workflow) bool {
	return w != nil && w.Status.Paused != nil && w.Status.Epoch != 0 && w.Status.Epoch == m.Status.Epoch
}

// GrantedTo reports whether the machine's agent holds the run under the machine's epoch.
func GrantedTo(m *trivet.Machine, w *trivet.Workflow) bool {
	return w.Status.State == trivet.WorkflowRunning && w.Status.Epoch == m.Status.Epoch && !w.Status.Frozen
}
