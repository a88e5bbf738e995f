package trivet

import "time"

// SharedStatus is the observed state of what several machines use: a network, an image.
type SharedStatus struct {
	// Failures are machines that failed with it, one after the other. It is empty once one has succeeded.
	Failures *SharedFailures `json:"failures,omitempty"`
}

// SharedFailures are the machines that failed at one step with something they share, none of which succeeded meanwhile.
// From the second one on, of a network from the third one on, what they share is at fault and not the machine.
type SharedFailures struct {
	// Generation is that of the shared record. Failures of an earlier one do not count.
	Generation int64     `json:"generation"`
	Machines   []string  `json:"machines"` // the first ones that failed
	Step       string    `json:"step"`     // that failed last
	Cause      string    `json:"cause"`    // for people
	Time       time.Time `json:"time"`     // of the last one, for people
}
