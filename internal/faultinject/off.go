//go:build !faultinject

// Package faultinject names bugs that a test enables, one at a time, to prove that it detects them. Only a program
// built with the tag "faultinject" contains them. In all others they are false constants, and code that depends on
// them is not compiled.
package faultinject

// The bugs.
const (
	WriteLost      = false // an unanswered write is acknowledged
	StaleRead      = false // a linearizable read does not need a quorum
	WatchSkipped   = false // a watch skips the first of several changes
	WatchRepeated  = false // a watch resumes one revision too early
	WatchReordered = false // a watch swaps the first two of several changes
	AddressTwice   = false // an address is assigned without a record
	MachineTwice   = false // a machine is claimed in any state
	ActionTwice    = false // completed actions are not sent to an agent
	RunStuck       = false // a phone-home is acknowledged and not recorded
	OldEpoch       = false // a machine that is released starts again at epoch 0
	DeadlineEarly  = false // a deadline expires after half of its time
	DeadlineNever  = false // elapsed time is not counted
	BMCShared      = false // a head does not wait until another one has ended with a BMC
	WriteRate      = false // what has failed is retried at once
	FullStore      = false // a full store refuses deletions and small changes, too
	WitnessForges  = false // a witness proposes writes of its own
)
