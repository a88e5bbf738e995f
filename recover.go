package trivet

import "time"

// Recovered describes a recovery of the cluster: a first head was made from older records, and all other heads were
// fenced.
type Recovered struct {
	// Incarnation identifies the cluster since then: how often it was recovered, and a random part.
	Incarnation string `json:"incarnation"`
	// From is what it was recovered from: "backup" or "data directory".
	From string `json:"from"`
	// Time is when that was done, DataTime when the records were saved that it was recovered from. What was written
	// after DataTime is lost.
	Time     time.Time `json:"time"`
	DataTime time.Time `json:"dataTime"` // by the clock of the head that saved them
	Revision int64     `json:"revision"` // the last one of these records
	Head     string    `json:"head"`     // the first head since then
	// Cause is why that head took over by itself; empty: it was done by an operator.
	Cause string `json:"cause,omitempty"`
}

// What an operator decides about a provision that a recovery has frozen.
const (
	ResolveContinue = "continue" // it waits or runs again; a machine without an agent is power-cycled
	ResolveCancel   = "cancel"   // it fails; its machine is left as it is, unverified
)

// ResolveRequest decides about a provision that a recovery has frozen.
type ResolveRequest struct {
	Decision string `json:"decision"` // "continue" or "cancel"
}
