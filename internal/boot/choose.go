package boot

import (
	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Way is what a machine boots.
type Way string

// The ways.
const (
	Installer Way = "installer" // the installer OS, whose agent fetches work or waits for it
	LocalDisk Way = "disk"      // what is installed
	Hold      Way = "hold"      // nothing yet: ask again
	Nothing   Way = "nothing"   // it is none of ours
)

// Choose says what a machine boots, and why. m is nil where no record has the MAC, w where the machine has no run; n is
// the network it boots from, nil if that is not known. The answer may rest on old copies: the installer touches a disk
// only with a run that is granted to it.
func Choose(m *trivet.Machine, w *trivet.Workflow, n *trivet.Network) (way Way, why string) {
	if m == nil {
		return chooseUnknown(n)
	}
	switch m.Status.State {
	case trivet.MachineActive:
		return LocalDisk, "it is active"
	case trivet.MachineQuarantined:
		return Hold, "it is quarantined: " + m.Status.Reason
	case trivet.MachineClaimed, trivet.MachineProvisioning:
		switch {
		case w == nil:
			return Hold, "its workflow is not known here"
		case workflow.WantsAgent(&w.Status):
			return Installer, "it is " + string(m.Status.State) + " for workflow " + w.Name
		case w.Status.State == trivet.WorkflowStarting:
			return LocalDisk, "workflow " + w.Name + " waits for its first boot"
		default:
			return Hold, "workflow " + w.Name + " has " + string(w.Status.State)
		}
	case trivet.MachineDiscovered, trivet.MachineAvailable, trivet.MachineReleasing, "":
	}
	// Its agent waits for work, so that no boot is needed when there is some.
	return Installer, "it waits for work"
}

func chooseUnknown(n *trivet.Network) (Way, string) {
	switch {
	case n == nil:
		return Nothing, "no record has it or the network it comes by"
	case n.Spec.Unknown == "ignore":
		return Nothing, "no record has it, and unknown machines are ignored in network " + n.Name
	case n.Spec.Unknown == "address-only":
		return Hold, "no record has it, and unknown machines are held in network " + n.Name
	}
	return Installer, "no record has it: it enrols itself"
}
