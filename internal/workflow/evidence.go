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

// SharedAtFault returns the kind of what machines share that is at fault for a failure; empty where nothing is.
func SharedAtFault(f *trivet.Failure) trivet.Kind {
	if kind := SharedBy(f); f.Type == FaultOf(kind) {
		return kind
	}
	return ""
}

// TriedSince returns since when the machine of a run that failed had tried the step that failed.
func TriedSince(s *trivet.WorkflowStatus) time.Time {
	step := s.Step(s.Failure.Step)
	switch {
	case step == nil:
		return s.Started
	case step.First.IsZero():
		return step.Started
	}
	return step.First
}

// Shown returns what a change of a run shows to work: the kinds of the shared records with which its machine has
// succeeded, and when. was is nil for a run that is new to this head.
func Shown(was, is *trivet.WorkflowStatus) (kinds []trivet.Kind, at time.Time) {
	hello := is.Step(trivet.StepHello)
	if isDone(hello) && (was == nil || !isDone(was.Step(trivet.StepHello))) {
		at = hello.Ended
		if isDone(is.Step(trivet.StepPowerOn)) {
			kinds = append(kinds, "Site")
		}
		if isDone(is.Step(trivet.StepKernel)) { // an agent that was up already has booted before
			kinds = append(kinds, "Network", "Platform")
		}
	}
	if is.State == trivet.WorkflowSucceeded && !isStated(is) && (was == nil || was.State != is.State) {
		kinds, at = append(kinds, "Image"), is.Ended
	}
	return kinds, at
}

func isDone(s *trivet.Step) bool { return s != nil && s.State == trivet.StepDone }

// AddFailure returns the failures with that of another machine. generation is that of the shared record now.
func AddFailure(s *trivet.SharedFailures, generation int64, machine string, f *trivet.Failure,
	now time.Time) *trivet.SharedFailures {
	next := trivet.SharedFailures{Generation: generation}
	if s != nil && s.Generation == generation {
		next = *s
	}
	if AreMany(&next) || next.Step == f.Step && slices.Contains(next.Machines, machine) {
		return &next // the record of what is known to be at fault is not written by each failure
	}
	if next.Step != f.Step { // what is broken fails at one step
		next.Machines = nil
	}
	next.Machines = append(slices.Clone(next.Machines), machine)
	next.Step, next.Cause, next.Time = f.Step, f.Cause, now
	return &next
}

// AreMany reports whether so many machines have failed that what they share is at fault. A network has few machines at
// work at a time, so that two which are broken are often the only ones.
func AreMany(s *trivet.SharedFailures) bool {
	switch {
	case s == nil:
		return false
	case SharedBy(&trivet.Failure{Step: s.Step}) == "Network":
		return len(s.Machines) >= 3
	}
	return len(s.Machines) >= 2
}

// AtFault reports why a shared record, whose generation is given, is at fault and not the machines; empty where it is
// not.
func AtFault(what string, s *trivet.SharedFailures, generation int64) string {
	if s == nil || s.Generation != generation || !AreMany(s) {
		return ""
	}
	last := len(s.Machines) - 1
	return fmt.Sprintf("%s is at fault: %s and %s failed at %s, and no machine has succeeded since", what,
		strings.Join(s.Machines[:last], ", "), s.Machines[last], s.Step)
}

// sharedFault is the type of a failure by what is at fault.
var sharedFault = map[trivet.Kind]trivet.FailureType{
	"Site": trivet.FaultNetwork, "Network": trivet.FaultNetwork, "Platform": trivet.FaultPlatform,
	"Image": trivet.FaultImage,
}

// FaultOf returns the type of a failure for which what machines share is at fault.
func FaultOf(kind trivet.Kind) trivet.FailureType { return sharedFault[kind] }

// Blame makes a failure that of what the machines share.
func Blame(f *trivet.Failure, kind trivet.Kind, why string) {
	f.Type, f.Cause = FaultOf(kind), f.Cause+"; "+why
}
