package workflow

import (
	"time"

	"github.com/trivet-project/trivet"
)

// EpochJump is added to each machine's epoch by a recovery: what may have been granted after the records were saved
// has a lower one, and is refused.
const EpochJump = 1_000_000_000

// UnverifiedReason is the reason of machines that are unverified.
const UnverifiedReason = "the cluster was recovered from older records: what was installed on it since is not known; " +
	"it becomes available when its BMC reports it off, or its agent is idle, or by trivet accept; where it runs what a " +
	"provision wanted: trivet recover resolve PROVISION --installed"

// Recover changes what is recorded of a machine to what is certain after a recovery from older records. w is its run;
// nil where it has none. A run that has not ended is frozen, one that releases the machine is cancelled, power requests
// are dropped, and a machine without a run that could be claimed, or would become available, is unverified.
func Recover(s *trivet.MachineStatus, w *trivet.Workflow, now time.Time) {
	s.Epoch += EpochJump
	s.Intent, s.PowerHead, s.Power, s.PowerError = nil, "", "", nil
	if w != nil && !w.Status.State.Ended() {
		if w.Status.Paused != nil {
			w.Status.Paused.Power = ""
		}
		if !IsRelease(w) {
			w.Status.Frozen = true
			return
		}
		run := Run{Spec: &w.Spec, Status: &w.Status, Now: now}
		run.Cancel("the cluster was recovered from older records")
	}
	if HasRun(s) {
		s.Provision = ""
	}
	if Change(s, Unverify) == nil && s.State == trivet.MachineUnverified {
		s.Reason = UnverifiedReason
	}
}

// RecoverProvision does the same for a provision.
func RecoverProvision(s *trivet.ProvisionStatus) {
	if s.State.Ended() {
		return
	}
	s.State = trivet.ProvisionFrozen
	s.Reason = "the cluster was recovered from older records: decide by trivet recover resolve"
	s.WaitsFor, s.WaitsGeneration = "", 0
}

// Unfreeze lets a frozen run go on, as the operator decided. Where it needs the installer, the machine is expected to
// boot it, unless its idle agent asks for the run before. It reports whether the machine must be power-cycled.
func (r *Run) Unfreeze(m Machine) (cycle bool) {
	r.Status.Frozen = false
	if !WantsAgent(r.Status) {
		if step := r.Status.Current(); step != nil {
			r.restart(step)
		}
		return false
	}
	r.Status.Epoch = 0
	r.expectBoot("continued after a recovery")
	if !m.Power && !m.AgentUp {
		r.Status.Current().Note = "continued after a recovery: power the machine on by hand, to boot from the network"
	}
	return m.Power && !m.AgentUp
}
