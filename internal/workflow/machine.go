package workflow

import (
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// Command changes the state of a machine.
type Command string

// The commands.
const (
	// Accept is the operator's: a discovered machine may be claimed, a quarantined one returns to its former state,
	// and what a releasing one still runs does not matter.
	Accept Command = "accept"
	// Quarantine keeps the machine out of placement. Its run has ended before.
	Quarantine Command = "quarantine"
	// Claim gives the machine to a provision.
	Claim Command = "claim"
	// Redeploy gives the machine another run of the provision that it serves.
	Redeploy Command = "redeploy"
	// Grant gives the run to the machine's agent.
	Grant Command = "grant"
	// Activate ends a run successfully.
	Activate Command = "activate"
	// Abandon ends a run whose machine runs nothing that was installed.
	Abandon Command = "abandon"
	// Release gives up a machine that has booted its disk, or has not stopped to run it: that may still run.
	Release Command = "release"
	// BeginRelease starts a run that stops the machine, by command. The run that it had has ended before.
	BeginRelease Command = "begin-release"
	// Clear records that nothing is running on the machine but an agent: the BMC reports it off, or an agent is up.
	Clear Command = "clear"
	// Unverify records that it is not known what runs on the machine, after a recovery from older records.
	Unverify Command = "unverify"
	// Adopt is the operator's, after a recovery: the machine runs what a provision wanted. A run that it had was frozen.
	Adopt Command = "adopt"
)

// next is the new state by command and state. A command that is not listed for a state is refused. A quarantined
// machine has a former state, which Grant, Release, BeginRelease, Clear, Unverify and Adopt change and Accept restores
// (see Change): the machine stays in quarantine.
var next = map[Command]map[trivet.MachineState]trivet.MachineState{
	Accept: {
		trivet.MachineDiscovered: trivet.MachineAvailable,
		trivet.MachineAvailable:  trivet.MachineAvailable,
		trivet.MachineReleasing:  trivet.MachineAvailable,
		trivet.MachineUnverified: trivet.MachineAvailable,
	},
	Quarantine: {
		trivet.MachineDiscovered:  trivet.MachineQuarantined,
		trivet.MachineAvailable:   trivet.MachineQuarantined,
		trivet.MachineActive:      trivet.MachineQuarantined,
		trivet.MachineReleasing:   trivet.MachineQuarantined,
		trivet.MachineQuarantined: trivet.MachineQuarantined,
		trivet.MachineUnverified:  trivet.MachineQuarantined,
	},
	Claim:    {trivet.MachineAvailable: trivet.MachineClaimed},
	Redeploy: {trivet.MachineActive: trivet.MachineClaimed},
	Grant: {
		trivet.MachineClaimed:      trivet.MachineProvisioning,
		trivet.MachineProvisioning: trivet.MachineProvisioning,
		trivet.MachineReleasing:    trivet.MachineReleasing,
	},
	Activate: {trivet.MachineProvisioning: trivet.MachineActive},
	Abandon: {
		trivet.MachineClaimed:      trivet.MachineAvailable,
		trivet.MachineProvisioning: trivet.MachineAvailable,
	},
	Release: {
		trivet.MachineDiscovered:   trivet.MachineDiscovered,
		trivet.MachineAvailable:    trivet.MachineAvailable,
		trivet.MachineClaimed:      trivet.MachineReleasing,
		trivet.MachineProvisioning: trivet.MachineReleasing,
		trivet.MachineActive:       trivet.MachineReleasing,
		trivet.MachineReleasing:    trivet.MachineReleasing,
		trivet.MachineUnverified:   trivet.MachineUnverified,
	},
	Clear: {
		trivet.MachineReleasing:  trivet.MachineAvailable,
		trivet.MachineUnverified: trivet.MachineAvailable,
	},
	Unverify: {
		trivet.MachineAvailable:    trivet.MachineUnverified,
		trivet.MachineClaimed:      trivet.MachineUnverified,
		trivet.MachineProvisioning: trivet.MachineUnverified,
		trivet.MachineReleasing:    trivet.MachineUnverified,
		trivet.MachineUnverified:   trivet.MachineUnverified,
	},
	Adopt: {
		trivet.MachineDiscovered:   trivet.MachineActive,
		trivet.MachineAvailable:    trivet.MachineActive,
		trivet.MachineClaimed:      trivet.MachineActive,
		trivet.MachineProvisioning: trivet.MachineActive,
		trivet.MachineUnverified:   trivet.MachineActive,
	},
	BeginRelease: {
		trivet.MachineAvailable:    trivet.MachineReleasing,
		trivet.MachineClaimed:      trivet.MachineReleasing,
		trivet.MachineProvisioning: trivet.MachineReleasing,
		trivet.MachineActive:       trivet.MachineReleasing,
		trivet.MachineReleasing:    trivet.MachineReleasing,
		trivet.MachineUnverified:   trivet.MachineReleasing,
	},
}

// Change applies a command to the state of a machine, or fails with ErrConflict and changes nothing. It is the only
// place that decides about states, and it never makes a machine available that may run a system: only Clear and
// Accept do, and Accept only at the operator's request.
func Change(s *trivet.MachineStatus, c Command) error {
	at := &s.State
	if s.State == trivet.MachineQuarantined &&
		slices.Contains([]Command{Grant, Release, BeginRelease, Clear, Unverify, Adopt}, c) {
		at = &s.Former
	}
	to, ok := next[c][*at]
	if c == Accept && s.State == trivet.MachineQuarantined {
		to, ok = restored(s.Former), true
	}
	if !ok {
		return fmt.Errorf("%w: the machine is %s", trivet.ErrConflict, s.State)
	}
	switch {
	case to != trivet.MachineQuarantined && at == &s.State:
		s.Former = ""
	case s.State != trivet.MachineQuarantined:
		s.Former = s.State
	}
	*at = to
	return nil
}

// restored returns the state of a quarantined machine after it was accepted.
func restored(former trivet.MachineState) trivet.MachineState {
	switch former {
	case trivet.MachineActive, trivet.MachineReleasing, trivet.MachineUnverified:
		return former
	default: // accepted is what a discovered machine is, too
		return trivet.MachineAvailable
	}
}

// Vacate returns the command that takes a machine from its provision. w is its run; nil where it has none.
func Vacate(s *trivet.MachineStatus, w *trivet.Workflow) Command {
	if HasRun(s) && w != nil && !bootedDisk(&w.Status) && !RunsFormer(s, w) {
		return Abandon
	}
	return Release
}

// RunsFormer reports whether what an earlier run has installed may still run on a machine that is claimed: it is
// installed again, and no agent was granted that run yet. w is the run; nil where it has none.
func RunsFormer(s *trivet.MachineStatus, w *trivet.Workflow) bool {
	return s.State == trivet.MachineClaimed && w != nil && w.Spec.Redeploys != ""
}

// bootedDisk reports whether the machine left the installer for what the run installed.
func bootedDisk(s *trivet.WorkflowStatus) bool {
	step := s.Step(trivet.StepFirstBoot)
	return step != nil && step.Attempt > 0
}

// HasRun reports whether the machine is claimed for a run that has not ended.
func HasRun(s *trivet.MachineStatus) bool {
	return s.State == trivet.MachineClaimed || s.State == trivet.MachineProvisioning
}

// StateOf returns the state of a machine without its quarantine: what it has, or may have, to run.
func StateOf(s *trivet.MachineStatus) trivet.MachineState {
	if s.State == trivet.MachineQuarantined {
		return s.Former
	}
	return s.State
}
