// Package workflow holds the rules of a run: what its steps are, what a report, a sighting, a passed deadline or a lost
// agent makes of it, and which remedy follows. It is pure: a status goes in, a changed status and what happened come out;
// the caller writes both in one transaction. Clocks, stores and BMCs are elsewhere.
//
// A run goes power-on, dhcp, boot-script, kernel, hello, its actions in order, first-boot. One step at a time is running,
// and its deadline counts.
package workflow

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Happening is something to record of the machine; the caller adds subject, time and number.
type Happening struct {
	Reason  string // one word for programs
	Step    string
	Message string
	Warning bool
}

// Machine is what the rules know of the machine besides its run.
type Machine struct {
	// Power: its BMC can power it, so that remedies can cycle it.
	Power bool
	// AgentUp: an idle agent waits in it, so that no boot is needed.
	AgentUp bool
}

// Run is a workflow's status under change. Its methods gather what happened.
type Run struct {
	Spec   *trivet.WorkflowSpec
	Status *trivet.WorkflowStatus
	// Now is the wall clock, for people to read; no rule depends on it.
	Now time.Time
	// MaxResets bounds how often the agent may be lost.
	MaxResets int
	Happened  []Happening
}

func (r *Run) tell(reason, step, format string, args ...any) {
	r.Happened = append(r.Happened, Happening{Reason: reason, Step: step, Message: fmt.Sprintf(format, args...)})
}

func (r *Run) warn(reason, step, format string, args ...any) {
	r.tell(reason, step, format, args...)
	r.Happened[len(r.Happened)-1].Warning = true
}
