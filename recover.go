package trivet

import (
	"net/netip"
	"time"
)

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
	// ResolveInstalled: a machine runs what it wanted, since before the recovery, and serves it as it is. That is also
	// decided about a provision that waits for a machine, or has failed.
	ResolveInstalled = "installed"
)

// ResolveRequest decides about a provision after a recovery.
type ResolveRequest struct {
	Decision string `json:"decision"` // "continue", "cancel" or "installed"
	// Machine is the one that runs what the provision wanted, for "installed"; empty: the one that the provision had
	// last, or names.
	Machine string `json:"machine,omitempty"`
	// Address is the one that the boot port of that machine has, for "installed"; empty: as it is recorded, if it is.
	Address netip.Addr `json:"address,omitzero"`
}

// Validate checks the request by itself.
func (r *ResolveRequest) Validate() error {
	var p problems
	p.oneOf("decision", r.Decision, ResolveContinue, ResolveCancel, ResolveInstalled)
	p.ref("machine", r.Machine)
	if r.Decision != ResolveInstalled && r.Machine != "" {
		p.add("machine", "needs decision %s", ResolveInstalled)
	}
	if r.Decision != ResolveInstalled && r.Address.IsValid() {
		p.add("address", "needs decision %s", ResolveInstalled)
	} else if r.Address.IsValid() && !r.Address.Is4() {
		p.add("address", "%s is not an IPv4 address", r.Address)
	}
	return p.err()
}
