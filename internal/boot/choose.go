package boot

import "github.com/trivet-project/trivet"

// Target is what a machine boots.
type Target string

// The targets.
const (
	Installer Target = "installer" // the installer OS, whose agent gets a run or waits for one
	LocalDisk Target = "disk"      // the installed system
	Wait      Target = "wait"      // nothing yet: the script asks again
	None      Target = "none"      // the machine is not served
)

// doing returns what the machine does now, for the console.
func (t Target) doing() string {
	switch t {
	case Installer:
		return "booting the installer"
	case LocalDisk:
		return "booting the local disk"
	case Wait, None:
	}
	return "waiting"
}

// MachineFacts are the input of Choose.
type MachineFacts struct {
	Machine    *trivet.Machine  // nil: no record has the MAC
	Workflow   *trivet.Workflow // nil: the machine has no run, or this head does not know it
	WantsAgent bool             // the run needs the installer OS
	Network    *trivet.Network  // that the machine boots from; nil: unknown
}

// Choose returns what a machine boots, and why. The facts may be old: the installer touches a disk only with a run
// that is granted to it.
func Choose(f MachineFacts) (target Target, reason string) {
	m, w := f.Machine, f.Workflow
	if m == nil {
		return chooseUnknown(f.Network)
	}
	switch m.Status.State {
	case trivet.MachineActive:
		return LocalDisk, "it is active"
	case trivet.MachineUnverified:
		return LocalDisk, "it is unverified: something may have been installed on it"
	case trivet.MachineQuarantined:
		if m.Status.Former == trivet.MachineUnverified {
			return LocalDisk, "it is quarantined, and was unverified before"
		}
		if m.Status.Former == trivet.MachineActive {
			return LocalDisk, "it is quarantined, and was active before"
		}
		if m.Status.Former == trivet.MachineReleasing && f.WantsAgent {
			return Installer, "it is quarantined, and released by workflow " + w.ShortName()
		}
		return Wait, "it is quarantined: " + m.Status.Reason
	case trivet.MachineClaimed, trivet.MachineProvisioning:
		switch {
		case w == nil:
			return Wait, "this head does not know its workflow"
		case w.Status.Frozen:
			return LocalDisk, "run " + w.ShortName() + " is frozen and may have installed it: trivet recover resolve"
		case f.WantsAgent:
			return Installer, "it is " + string(m.Status.State) + " for workflow " + w.ShortName()
		case w.Status.State == trivet.WorkflowStarting:
			return LocalDisk, "workflow " + w.ShortName() + " waits for the first boot of the installed system"
		default:
			return Wait, "workflow " + w.ShortName() + " is " + string(w.Status.State)
		}
	case trivet.MachineDiscovered, trivet.MachineAvailable, trivet.MachineReleasing, "":
	}
	// The agent waits for a run, so that none needs another boot.
	return Installer, "it waits for a run"
}

func chooseUnknown(n *trivet.Network) (Target, string) {
	switch {
	case n == nil:
		return None, "no record has its MAC, or the network it boots from"
	case n.Spec.UnknownOrDefault() == "ignore":
		return None, "no record has its MAC, and unknown machines are ignored in network " + n.Name
	case n.Spec.UnknownOrDefault() == "address-only":
		return Wait, "no record has its MAC, and unknown machines get no more than an address in network " + n.Name
	}
	return Installer, "no record has its MAC: it enrols itself"
}
