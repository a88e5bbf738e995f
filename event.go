package trivet

import (
	"fmt"
	"time"
)

// Event records a change of a subject. It is written in the transaction that makes the change. Each subject keeps its
// newest EventsPerSubject: the record's name is a slot in a ring, so older events are overwritten and need no garbage
// collection.
type Event struct {
	Meta
	Spec EventSpec `json:"spec"`
}

// EventsPerSubject bounds the events that are kept of one subject.
const EventsPerSubject = 256

// EventSpec describes the change.
type EventSpec struct {
	Subject  string    `json:"subject"` // "machine/m1"
	Seq      int64     `json:"seq"`     // from 1, increasing by one per subject
	Time     time.Time `json:"time"`    // of the head that wrote it
	Reason   string    `json:"reason"`  // one word for programs: "Claimed", "StepDone", "ActionFailed"
	Message  string    `json:"message"` // for people
	Step     string    `json:"step,omitempty"`
	Workflow string    `json:"workflow,omitempty"`
	Epoch    int64     `json:"epoch,omitempty"`
	Warning  bool      `json:"warning,omitempty"`
	Head     string    `json:"head,omitempty"` // that wrote it
}

// EventName returns the name of a machine's event number seq.
func EventName(machine string, seq int64) string {
	return fmt.Sprintf("machine.%s.%d", machine, seq%EventsPerSubject)
}

// Validate checks an event by itself.
func (e *Event) Validate() error {
	var p problems
	p.name(e.Name)
	p.need("spec.subject", e.Spec.Subject)
	p.need("spec.reason", e.Spec.Reason)
	p.bytes("spec.message", e.Spec.Message, 4<<10)
	return p.err()
}
