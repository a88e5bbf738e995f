// Package action does the work on a machine: each built-in action of a template, idempotent, with typed failures.
//
// The agent calls [Do] once for each attempt. What the actions touch is in [Env], so that the same code runs in a machine
// and, in the lab, on files as disks without root. What arguments an action takes is in package spec, which the API shares.
package action

import (
	"errors"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
)

// Attempt is one try of one action, and how it speaks while it runs.
type Attempt struct {
	Run    *trivet.Run
	Action trivet.Action
	Try    int // from 1

	// Log takes the action's output; it never blocks. Progress and Note are for people and may be called at any rate.
	Log      io.Writer
	Progress func(done, total int64, unit string)
	Note     func(text string)
	// Blobs returns the URLs that blobs are fetched from, as the heads last told.
	Blobs func() []string
}

// Ending is what becomes of a machine after its agent.
type Ending string

// The endings.
const (
	EndNone   Ending = ""       // the agent was told to end by its caller
	EndReboot Ending = "reboot" // boot as the firmware does; netboot will say what
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

// Failure is a failed attempt, with whose fault it is.
type Failure struct {
	Fault trivet.FailureType
	// Final means that another try cannot mend it.
	Final bool
	Err   error
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

// Fault returns an error its type. An error that has one keeps it; nil stays nil.
func Fault(t trivet.FailureType, err error) error {
	var f *Failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	return &Failure{Fault: t, Err: err}
}

// failf is a failure that another try may mend.
func failf(t trivet.FailureType, format string, args ...any) error {
	return &Failure{Fault: t, Err: fmt.Errorf(format, args...)}
}

// finalf is a failure that no other try mends.
func finalf(t trivet.FailureType, format string, args ...any) error {
	return &Failure{Fault: t, Final: true, Err: fmt.Errorf(format, args...)}
}
