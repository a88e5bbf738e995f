//go:build !faultinject

// Package faultinject names bugs that a test switches on, one at a time, to see that it would find them. Only a program that is built
// with the tag "faultinject" has them. In all others they are constants, and nothing that depends on them is compiled.
package faultinject

// The bugs.
const (
	WriteLost      = false // a write that was not answered is acknowledged
	StaleRead      = false // a fresh read asks no quorum
	WatchSkipped   = false // of several changes at once a watch leaves out the first
	WatchRepeated  = false // a watch is resumed too early
	WatchReordered = false // of several changes at once the first two change places
	AddressTwice   = false // an address is given without a record
	MachineTwice   = false // a machine is claimed whatever its state
	ActionTwice    = false // an agent is not told what is done
	RunStuck       = false // a phone-home is acknowledged and forgotten
	OldEpoch       = false // a machine that is taken back begins at epoch 0
	DeadlineEarly  = false // time counts twice
	DeadlineNever  = false // no deadline is counted
)
