// Package workflow holds the rules of a run: what its steps are, how a report, a boot step, a deadline or a lost
// agent changes it, and which remedy follows. It is pure: a status goes in, a changed status and its events come out;
// the caller writes both in one transaction. Clocks, stores and BMCs are elsewhere.
//
// A run goes power-on, dhcp, boot-script, kernel, hello, its actions in order, first-boot. One step at a time is
// running, and its deadline counts.
package workflow

import (
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Event is something to record about the machine; the caller adds subject, time and number.
type Event struct {
	Reason  string // one of the root package's reasons
	Step    string
	Message string
	Warning bool
}

// Machine is what the rules know of the machine besides its run.
type Machine struct {
	// Power: its BMC can power it, so that remedies can cycle it.
	Power bool
	// AgentUp: an idle agent waits in it, so that no boot is needed. It is granted the run at the claim.
	AgentUp bool
}

// Run is a workflow's status while it is changed. Its methods collect events.
type Run struct {
	Spec   *trivet.WorkflowSpec
	Status *trivet.WorkflowStatus
	// Now is the wall clock, for people to read; no rule depends on it.
	Now time.Time
	// MaxResets bounds how often the agent may be lost.
	MaxResets int
	Events    []Event
}

func (r *Run) event(reason, step, format string, args ...any) {
	r.Events = append(r.Events, Event{Reason: reason, Step: step, Message: fmt.Sprintf(format, args...)})
}

func (r *Run) warn(reason, step, format string, args ...any) {
	r.event(reason, step, format, args...)
	r.Events[len(r.Events)-1].Warning = true
}
