package trivet

import "cmp"

// ProvisionHead is the head that a provision makes of its machine. Its template has an action of use "head", which
// leaves the right to join with the installed system.
type ProvisionHead struct {
	// Role is the role of the head: "voter", "standby" or "witness".
	Role string `json:"role,omitempty"`
	// Plan is that of the Rendered run which an administrator has seen: nothing else is installed as a head. Empty: it is
	// not compared, and who may write the template decides what runs with the keys of the cluster.
	Plan string `json:"plan,omitempty"`
}

// PromoteRelease is the release that added heads on machines that Trivet has installed.
const PromoteRelease Release = "0.3.1"

// RoleOrDefault returns Role, or its default.
func (h *ProvisionHead) RoleOrDefault() string { return cmp.Or(h.Role, RoleVoter) }

// RoleOf returns the role of the head that a provision makes; empty: it makes none.
func (h *ProvisionHead) RoleOf() string {
	if h == nil {
		return ""
	}
	return h.RoleOrDefault()
}

// RunJoin lets what a run installs join the cluster as a head.
type RunJoin struct {
	// Token is the join token: it is valid for one head, at the address of the machine, once the run has succeeded.
	Token string `json:"token"`
	// Heads are the API URLs of the heads that the new one may ask.
	Heads []string `json:"heads"`
	// Address is the address of the machine, which the new head has to advertise.
	Address string `json:"address"`
}

func (v *Provision) validateHead(p *problems) {
	h := v.Spec.Head
	if h == nil {
		return
	}
	p.oneOf("spec.head.role", h.Role, "", RoleVoter, RoleStandby, RoleWitness)
	if v.Spec.Machine == "" {
		p.add("spec.head", "needs spec.machine: name the machine that becomes a head")
	}
	if v.Spec.NetworkData != "" {
		p.add("spec.networkData", "excludes spec.head: a head has the address that its machine has in its network")
	}
}
