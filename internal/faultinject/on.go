//go:build faultinject

package faultinject

import "os"

// bug is the enabled bug; empty: none.
var bug = os.Getenv("TRIVET_FAULT")

var (
	WriteLost      = bug == "WriteLost"
	StaleRead      = bug == "StaleRead"
	WatchSkipped   = bug == "WatchSkipped"
	WatchRepeated  = bug == "WatchRepeated"
	WatchReordered = bug == "WatchReordered"
	AddressTwice   = bug == "AddressTwice"
	MachineTwice   = bug == "MachineTwice"
	ActionTwice    = bug == "ActionTwice"
	RunStuck       = bug == "RunStuck"
	OldEpoch       = bug == "OldEpoch"
	DeadlineEarly  = bug == "DeadlineEarly"
	DeadlineNever  = bug == "DeadlineNever"
	BMCShared      = bug == "BMCShared"
	WriteRate      = bug == "WriteRate"
	FullStore      = bug == "FullStore"
	WitnessForges  = bug == "WitnessForges"
)
