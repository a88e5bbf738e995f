package workflow

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// SharedBy returns what machines share that may be at fault for a failure: a platform, a network, an image, or for
// the power of machines the site. It is empty where nothing is.
func SharedBy(f *trivet.Failure) trivet.Kind {
	switch {
	case f.Step == trivet.StepPowerOn:
		return "Site"
	case f.Step == trivet.StepDHCP, f.Step == trivet.StepScript, f.Step == trivet.StepKernel:
		return "Network"
	case f.Step == trivet.StepHello:
		return "Platform"
	case f.Step == trivet.StepFirstBoot, f.Type == trivet.FaultImage:
		return "Image"
	}
	return ""
}

// AddFailure returns the failures with that of another machine. generation is that of the shared record now.
func AddFailure(s *trivet.SharedFailures, generation int64, machine string, f *trivet.Failure,
	now time.Time) *trivet.SharedFailures {
	next := trivet.SharedFailures{Generation: generation}
	if s != nil && s.Generation == generation {
		next = *s
	}
	if len(next.Machines) >= trivet.SharedAfter || slices.Contains(next.Machines, machine) {
		return &next // the record of what is known to be at fault is not written by each failure
	}
	next.Machines = append(slices.Clone(next.Machines), machine)
	next.Step, next.Cause, next.Time = f.Step, f.Cause, now
	return &next
}

// AtFault reports why a shared record, whose generation is given, is at fault and not the machines; empty where it is
// not.
func AtFault(what string, s *trivet.SharedFailures, generation int64) string {
	if s == nil || s.Generation != generation || len(s.Machines) < trivet.SharedAfter {
		return ""
	}
	return fmt.Sprintf("%s is at fault: %s failed at %s, and no machine has succeeded since", what,
		strings.Join(s.Machines, " and "), s.Step)
}

// sharedFault is the type of a failure by what is at fault.
var sharedFault = map[trivet.Kind]trivet.FailureType{
	"Site": trivet.FaultNetwork, "Network": trivet.FaultNetwork, "Platform": trivet.FaultPlatform,
	"Image": trivet.FaultImage,
}

// Blame makes a failure that of what the machines share.
func Blame(f *trivet.Failure, kind trivet.Kind, why string) {
	f.Type, f.Cause = sharedFault[kind], f.Cause+"; "+why
}
