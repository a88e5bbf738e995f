// Package action implements the built-in actions of templates on a machine: idempotent, with typed failures.
//
// The agent calls [Env.Do] once for each attempt. Everything that actions change is behind [Env], so that the same
// code runs in a machine and, in the lab, on files as disks without root. Arguments are defined by
// internal/actionspec.
package action

import (
	"errors"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
)

// Attempt is one attempt of one action, and how it reports while it runs.
type Attempt struct {
	Run    *trivet.Run
	Action trivet.Action
	Number int // of the attempt, from 1

	// Log receives the action's output; it never blocks. Progress and Note are for people and may be called at any
	// rate.
	Log      io.Writer
	Progress func(done, total int64, unit string)
	Note     func(text string)
	// Blobs returns the URLs that blobs are fetched from, as last received from a head.
	Blobs func() []string
}

// Ending is what a machine does when its agent has ended.
type Ending string

// The endings.
const (
	EndNone   Ending = ""       // the agent was ended by its caller
	EndReboot Ending = "reboot" // boot as the firmware does; netboot decides what
	EndBoot   Ending = "boot"   // nothing to do here: boot the local disk
	EndKexec  Ending = "kexec"  // start the kernel that is loaded
	EndOff    Ending = "off"    // power off
)

// EndingOf is the ending that an action leads to once its last report is acknowledged; [EndNone] for most.
func EndingOf(use string) Ending {
	switch use {
	case "reboot":
		return EndReboot
	case "kexec":
		return EndKexec
	case "poweroff":
		return EndOff
	}
	return EndNone
}

// Failure is the error of a failed attempt, with its type.
type Failure struct {
	Fault trivet.FailureType
	// Final means that a retry cannot succeed.
	Final bool
	Err   error
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Fault returns err as a [Failure] of type t, unless it is one already. Nil stays nil.
func Fault(t trivet.FailureType, err error) error {
	var f *Failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	return &Failure{Fault: t, Err: err}
}

// failf returns a failure that can be retried.
func failf(t trivet.FailureType, format string, args ...any) error {
	return &Failure{Fault: t, Err: fmt.Errorf(format, args...)}
}

// finalf returns a failure that is not retried.
func finalf(t trivet.FailureType, format string, args ...any) error {
	return &Failure{Fault: t, Final: true, Err: fmt.Errorf(format, args...)}
}
