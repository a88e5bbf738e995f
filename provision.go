package trivet

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Provision is a request to apply a template to a machine that matches a selector.
type Provision struct {
	Meta
	Spec   ProvisionSpec   `json:"spec"`
	Status ProvisionStatus `json:"status,omitzero"`
}

// ProvisionSpec selects the machine and what to apply to it.
type ProvisionSpec struct {
	// Template is the template to apply, of this project or "shared/NAME"; Parameters the values of its parameters.
	Template   string            `json:"template"`
	Parameters map[string]string `json:"parameters,omitempty"` // by name
	// Machine names one machine; Selector matches any available one that has all these labels. One of them is required.
	Machine  string            `json:"machine,omitempty"`
	Selector map[string]string `json:"selector,omitempty"` // labels that the machine must have
	// Alternatives is how many further machines of the selector are used, one after the other, where the machine is at
	// fault. The same configuration is applied to each.
	Alternatives *int `json:"alternatives,omitempty"`
	// Race is 2 where two machines of the selector install it at the same time: the one that succeeds first serves it, and
	// the other one is stopped and released. Site.spec.raceBudget bounds how many do in the site. 0: one machine.
	Race int `json:"race,omitempty"`
	// Hedge lets a second machine race only once a step of the first one takes longer than 95 % of the earlier ones of its
	// model, where at least MinHedgeRuns are known.
	Hedge bool `json:"hedge,omitempty"`
	// IfNoMachine is "wait" or "fail": fail at once where no machine is free, neither the first one nor an alternative.
	IfNoMachine string `json:"ifNoMachine,omitempty"`
	// Count makes it a request for so many machines of the selector. For each there is a provision of its own, a
	// member, named NAME-1, NAME-2 and so on, with this spec but Count and MaxInFlight. Members are created, and
	// deleted where they wait or have failed, until there are so many. Those that have a machine stay: they are deleted
	// by their names.
	Count *int `json:"count,omitempty"`
	// MaxInFlight is how many members may wait for a machine or run at the same time; 0: as many as there are.
	MaxInFlight int `json:"maxInFlight,omitempty"`
	// Hostname, users and network of the installed system, written by the seed action for cloud-init.
	Hostname string   `json:"hostname,omitempty"` // empty: the machine's name; a member has its number in it: web-3
	SSHKeys  []string `json:"sshKeys,omitempty"`  // lines of authorized_keys
	UserData string   `json:"userData,omitempty"` // cloud-init user-data
	// NetworkData is a cloud-init network-config, version 2; empty means the machine's interfaces, or its boot
	// port with its address where it has none.
	NetworkData string `json:"networkData,omitempty"`
	// Head makes the machine a head: what is installed may join the cluster once, from the address of the machine. Only
	// administrators may write it.
	Head *ProvisionHead `json:"head,omitempty"`
}

// The values of ProvisionSpec.IfNoMachine.
const (
	NoMachineWait = "wait"
	NoMachineFail = "fail"
)

// AlternativesOrDefault returns Alternatives, or its default.
func (s *ProvisionSpec) AlternativesOrDefault() int {
	return *cmp.Or(s.Alternatives, new(DefaultAlternatives))
}

// IfNoMachineOrDefault returns IfNoMachine, or its default.
func (s *ProvisionSpec) IfNoMachineOrDefault() string { return cmp.Or(s.IfNoMachine, NoMachineWait) }

// ProvisionState is the state of a provision.
type ProvisionState string

// The states of a provision.
const (
	ProvisionPending   ProvisionState = "pending" // no machine yet; see Reason
	ProvisionRunning   ProvisionState = "running"
	ProvisionSucceeded ProvisionState = "succeeded"
	ProvisionFailed    ProvisionState = "failed"
	// ProvisionFrozen: it waited, or was running, in the records that the cluster was recovered from, and does not
	// until an operator decides (trivet recover resolve).
	ProvisionFrozen ProvisionState = "frozen"
)

// ProvisionStatus is the progress of the request.
type ProvisionStatus struct {
	State  ProvisionState `json:"state,omitempty"`
	Reason string         `json:"reason,omitempty"` // why it is pending or failed
	// WaitsFor is what a pending provision waits for besides a machine: "image NAME", until that is not at fault, or
	// "power MACHINE", until that is off, so that its address can move to the next machine, or cannot be powered off.
	WaitsFor string `json:"waitsFor,omitempty"`
	// WaitsGeneration is the provision's generation when it began to wait for that.
	WaitsGeneration int64 `json:"waitsGeneration,omitempty"`
	// Paused: it claims no machine, and its run starts no further action, until it is resumed.
	Paused *Pause `json:"paused,omitempty"`

	Machine    string   `json:"machine,omitempty"`    // the machine of the newest attempt; empty while it waits
	MachineUID string   `json:"machineUID,omitempty"` // of that machine
	Address    string   `json:"address,omitempty"`    // of its boot port, where that is known when it is claimed
	Workflow   string   `json:"workflow,omitempty"`   // of the latest attempt
	Attempts   int      `json:"attempts,omitempty"`   // workflows created so far
	Failure    *Failure `json:"failure,omitempty"`
	// Spent are the machines that were at fault when a run of the provision failed on them, in that order.
	Spent []SpentMachine `json:"spent,omitempty"`
	// Race is the second machine that installs it, while there is one.
	Race *RaceRun `json:"race,omitempty"`
	// Hedge is why a second machine is wanted, with spec.hedge.
	Hedge string `json:"hedge,omitempty"`
	// RaceNote is what became of the race: why there was none, or which machine was first.
	RaceNote string `json:"raceNote,omitempty"`
	// Withdrawn is how many machines it had that were not at fault: that left its race, or whose network or platform
	// was at fault. They count as alternatives.
	Withdrawn int `json:"withdrawn,omitempty"`
	// Replaced is the machine that served it until an operator replaced it by another one.
	Replaced *ReplacedMachine `json:"replaced,omitempty"`
	Started  time.Time        `json:"started,omitzero"` // when the first machine was claimed
	Ended    time.Time        `json:"ended,omitzero"`   // when it succeeded or failed
	// MemberOf is the provision with spec.count that it is a member of, of the same project.
	MemberOf    string `json:"memberOf,omitempty"`
	MemberOfUID string `json:"memberOfUID,omitempty"` // of that provision
	// Members counts the members of a provision with spec.count. Every transaction that changes one keeps it.
	Members MemberCounts `json:"members,omitzero"`
}

// How many machines a provision uses after the first one.
const (
	DefaultAlternatives = 1
	MaxAlternatives     = 8
)

const (
	// RaceMachines is how many machines race.
	RaceMachines = 2
	// MinHedgeRuns is how many earlier runs of a step must be known, so that a slow one can be recognized.
	MinHedgeRuns = 20
)

// SpentMachine is a machine that a provision does not use again: a run of it failed there, by the machine's fault.
type SpentMachine struct {
	FormerMachine
	Rack     string  `json:"rack,omitempty"` // of that machine; one in another rack is preferred
	Workflow string  `json:"workflow"`       // the run
	Failure  Failure `json:"failure"`        // why it failed
}

// ReplacedMachine is a machine that an operator replaced. Its provision does not use it again.
type ReplacedMachine struct {
	FormerMachine
	By     string    `json:"by"`               // the account that replaced it
	Reason string    `json:"reason,omitempty"` // as that gave it
	Time   time.Time `json:"time,omitzero"`    // when
}

// RaceRun is a run of a provision beside another one.
type RaceRun struct {
	Machine    string `json:"machine"`           // the machine
	MachineUID string `json:"machineUID"`        // of that machine
	Address    string `json:"address,omitempty"` // of its boot port, where that is known when it is claimed
	Workflow   string `json:"workflow"`          // the run
}

// FormerMachine is a machine that a provision had before, and its address.
type FormerMachine struct {
	Machine    string `json:"machine"`    // it is quarantined
	MachineUID string `json:"machineUID"` // of that machine
	// Address is the one that its boot port had in the run.
	Address     string `json:"address,omitempty"`
	AddressKept string `json:"addressKept,omitempty"` // why the address does not move to the next machine
}

// Waits reports whether it waits for a machine: the first one, or another one after a failure.
func (s ProvisionState) Waits() bool { return s == "" || s == ProvisionPending }

// Claims reports whether it waits for a machine and may claim one: it is not paused.
func (s *ProvisionStatus) Claims() bool { return s.State.Waits() && s.Paused == nil }

// Ended reports whether the state is final: only a retry changes it.
func (s ProvisionState) Ended() bool { return s == ProvisionSucceeded || s == ProvisionFailed }

// Validate checks a provision by itself.
func (v *Provision) Validate() error {
	var p problems
	p.name(v.Name)
	p.need("spec.template", v.Spec.Template)
	p.projectRef("spec.template", v.Spec.Template)
	p.ref("spec.machine", v.Spec.Machine)
	if v.Spec.Machine == "" && len(v.Spec.Selector) == 0 {
		p.add("spec.selector", "is missing; set spec.machine or labels to select one")
	}
	if n := v.Spec.Alternatives; n != nil && (*n < 0 || *n > MaxAlternatives) {
		p.add("spec.alternatives", "must be from 0 to %d", MaxAlternatives)
	} else if n != nil && *n > 0 && v.Spec.Machine != "" {
		p.add("spec.alternatives", "needs spec.selector: a provision that names its machine has no alternative")
	}
	if v.Spec.Race != 0 && v.Spec.Race != RaceMachines {
		p.add("spec.race", "is %d; must be %d, or 0 for no race", v.Spec.Race, RaceMachines)
	} else if v.Spec.Race != 0 && v.Spec.Machine != "" {
		p.add("spec.race", "needs spec.selector: a provision that names its machine has no second one")
	}
	if v.Spec.Hedge && v.Spec.Race != 0 {
		p.add("spec.hedge", "excludes spec.race, which begins with two machines")
	} else if v.Spec.Hedge && v.Spec.Machine != "" {
		p.add("spec.hedge", "needs spec.selector: a provision that names its machine has no second one")
	}
	p.oneOf("spec.ifNoMachine", v.Spec.IfNoMachine, "", NoMachineWait, NoMachineFail)
	v.validateCount(&p)
	v.validateHead(&p)
	p.max("spec.parameters", len(v.Spec.Parameters), 64)
	p.max("spec.sshKeys", len(v.Spec.SSHKeys), 64)
	for i, key := range v.Spec.SSHKeys {
		if strings.ContainsAny(key, "\n\r") || len(key) > 16<<10 || len(strings.Fields(key)) < 2 {
			p.add(fmt.Sprintf("spec.sshKeys[%d]", i), "is not one line of authorized_keys; write the content of a file such as "+
				"~/.ssh/id_ed25519.pub")
		}
	}
	p.ref("spec.hostname", v.Spec.Hostname)
	p.bytes("spec.userData", v.Spec.UserData, 64<<10)
	p.bytes("spec.networkData", v.Spec.NetworkData, 64<<10)
	return p.err()
}
