package grade

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Observer notes what a run of a site shows to someone who watches its records.
type Observer struct {
	runs     map[string]*trivet.Workflow // the last version of each
	holder   map[string]string           // the run that has not ended, by machine
	ends     map[string]time.Time        // when the end of a run was seen
	begins   map[begin]time.Time         // when the begin of an attempt was seen
	attempts []Attempt
	twice    []string
}

// Attempt is an attempt of a step that was seen to fail.
type Attempt struct {
	Machine, Run, Step string
	Began              time.Time // when that was seen
	Timeout            time.Duration
	Detected           time.Time
}

// begin identifies an attempt.
type begin struct {
	run, step string
	attempt   int
	started   time.Time
}

func beginOf(run string, s *trivet.Step) begin { return begin{run, s.Name, s.Attempt, s.Started} }

// NewObserver returns an observer that has seen nothing.
func NewObserver() *Observer {
	return &Observer{runs: map[string]*trivet.Workflow{}, holder: map[string]string{},
		ends: map[string]time.Time{}, begins: map[begin]time.Time{}}
}

// Note notes a version of a run that is seen at a time.
func (o *Observer) Note(w *trivet.Workflow, now time.Time) {
	was, machine := o.runs[w.Name], w.Spec.Machine
	o.runs[w.Name] = w
	if other := o.holder[machine]; !w.Status.State.Ended() {
		if other != "" && other != w.Name {
			o.twice = append(o.twice, fmt.Sprintf("machine %s has the runs %s and %s at the same time", machine, other,
				w.Name))
		}
		o.holder[machine] = w.Name
	} else if other == w.Name {
		delete(o.holder, machine)
	}
	if _, seen := o.ends[w.Name]; w.Status.State.Ended() && !seen {
		o.ends[w.Name] = now
	}
	if step := w.Status.Current(); step != nil {
		if _, seen := o.begins[beginOf(w.Name, step)]; !seen {
			o.begins[beginOf(w.Name, step)] = now
		}
	}
	if was == nil {
		return
	}
	step := was.Status.Current()
	if step != nil && failedSince(step, &was.Status, &w.Status) {
		o.attempts = append(o.attempts, Attempt{Machine: machine, Run: w.Name, Step: step.Name,
			Timeout: step.Timeout.D(), Began: o.begins[beginOf(w.Name, step)], Detected: now})
	}
}

// failedSince reports whether the attempt of a step that ran has failed.
func failedSince(step *trivet.Step, was, is *trivet.WorkflowStatus) bool {
	next := is.Step(step.Name)
	switch {
	case next == nil:
		return false
	case next.State == trivet.StepFailed, next.Failures > step.Failures, is.Resets > was.Resets:
		return true
	}
	return trivet.IsBootStep(step.Name) && next.State == trivet.StepRunning && next.Attempt > step.Attempt
}
