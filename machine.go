package trivet

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Machine is one physical box. Its name is the operator's, or "m-" and the MAC where it enrolled itself.
type Machine struct {
	Meta
	Spec   MachineSpec   `json:"spec"`
	Status MachineStatus `json:"status,omitzero"`
}

// MachineSpec is what the operator says of the box.
type MachineSpec struct {
	// Arch is "amd64" or "arm64"; empty means whatever the firmware says.
	Arch string `json:"arch,omitempty"`
	// NICs are the ports it may boot from. A MAC belongs to one machine only (see [MAC]).
	NICs []NIC `json:"nics,omitempty"`
	// BMC, where there is one, lets Trivet power the machine.
	BMC *BMC `json:"bmc,omitempty"`
	// Disk selects the disk that installs write to; empty means the smallest fixed one (see [DiskHints]).
	Disk DiskHints `json:"disk,omitzero"`
	// Journal is a device or file in the machine where the agent keeps its journal over resets; empty means memory only.
	Journal string `json:"journal,omitempty"`
	// Platform names the kernel and initramfs it netboots; empty means the site's default.
	Platform string `json:"platform,omitempty"`
	// KernelArgs are added to the installer's kernel command line, "console=ttyS0".
	KernelArgs []string `json:"kernelArgs,omitempty"`
	Rack       string   `json:"rack,omitempty"`
	// Cordoned keeps the machine out of placement.
	Cordoned bool `json:"cordoned,omitempty"`
}

// NIC is a network port.
type NIC struct {
	MAC string `json:"mac"` // lower case, colons; the list's key
	// Address is fixed for this port; empty means one from its network's ranges.
	Address netip.Addr `json:"address,omitzero"`
}

// BMC is how to reach a machine's management controller.
type BMC struct {
	Protocol string `json:"protocol"` // "ipmi" or "redfish"
	Address  string `json:"address"`  // host, host:port or https URL
	Secret   string `json:"secret"`   // the Secret with keys user and password
	Insecure bool   `json:"insecure,omitempty"`
}

// MachineState is where a machine is in its life.
type MachineState string

// A machine's life. Only a machine that is available is claimed by placement.
const (
	MachineDiscovered   MachineState = "discovered"   // enrolled itself; nobody has accepted it
	MachineAvailable    MachineState = "available"    // may be claimed
	MachineClaimed      MachineState = "claimed"      // has a workflow; not seen to boot for it
	MachineProvisioning MachineState = "provisioning" // its agent was granted the run
	MachineActive       MachineState = "active"       // runs its own system
	MachineReleasing    MachineState = "releasing"    // given back; its effects are being undone
	MachineQuarantined  MachineState = "quarantined"  // kept out; Reason says why
)

// MachineStatus is what Trivet knows of the box.
type MachineStatus struct {
	State  MachineState `json:"state,omitempty"`
	Reason string       `json:"reason,omitempty"`
	// Workflow is the machine's current or last run, Provision who asked for it. Both empty when unclaimed.
	Workflow  string `json:"workflow,omitempty"`
	Provision string `json:"provision,omitempty"`
	// Epoch only rises: with every grant to a new agent and with every remedy. What carries an older one is refused.
	Epoch int64 `json:"epoch,omitempty"`
	// AgentKey is the Ed25519 key (base64) that the agent granted under Epoch proves itself by.
	AgentKey string `json:"agentKey,omitempty"`
	// BootID tells one boot of the agent's system from another.
	BootID    string     `json:"bootID,omitempty"`
	Inventory *Inventory `json:"inventory,omitempty"`
	// Power is the last state seen: "on", "off" or empty.
	Power string `json:"power,omitempty"`
	// Intent is what its BMC shall be told; gone once the BMC's state shows it.
	Intent *PowerIntent `json:"intent,omitempty"`
	// PowerHead is the head that held an intent which was taken away, until it says that it speaks with the BMC no more. It holds
	// the next intent, too.
	PowerHead string `json:"powerHead,omitempty"`
	// Events counts all that was ever recorded of this machine (see [Event]).
	Events int64 `json:"events,omitempty"`
	// Activated is when the installed system first phoned home.
	Activated time.Time `json:"activated,omitzero"`
}

// PowerIntent is written before a BMC is told anything, because a BMC cannot refuse: whoever acts on it holds it, and whoever
// takes it over waits that out and looks at the BMC's state first. Its times are by the clock of the head that wrote them: they
// tell one intent and one hold from another, and heads count by their own clocks from when they see them.
type PowerIntent struct {
	Want string `json:"want"` // "on", "off" or "cycle"
	Boot string `json:"boot"` // "network" or "disk", for the next boot only
	// Off is set once a cycle has seen the machine off.
	Off   bool      `json:"off,omitempty"`
	Until time.Time `json:"until"`
	// Head is the one that speaks with the BMC, until Held: what it sent by then may come into effect a little later.
	Head string    `json:"head,omitempty"`
	Held time.Time `json:"held,omitzero"`
}

// Inventory is what the agent found in the box.
type Inventory struct {
	Arch     string    `json:"arch,omitempty"`
	Vendor   string    `json:"vendor,omitempty"`
	Product  string    `json:"product,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	UUID     string    `json:"uuid,omitempty"`
	Firmware string    `json:"firmware,omitempty"` // "bios" or "uefi"
	CPU      string    `json:"cpu,omitempty"`      // model
	Cores    int       `json:"cores,omitempty"`
	MemoryMB int64     `json:"memoryMB,omitempty"`
	Disks    []Disk    `json:"disks,omitempty"`
	NICs     []NICInfo `json:"nics,omitempty"`
	BMC      string    `json:"bmc,omitempty"` // the BMC's address as the box itself tells it
}

// NICInfo is one port as the box itself sees it.
type NICInfo struct {
	Name   string `json:"name"` // "eth0"
	MAC    string `json:"mac"`
	Link   bool   `json:"link,omitempty"`
	Driver string `json:"driver,omitempty"`
}

// MAC holds a MAC address for one machine. Its name is the address, so two machines cannot have it. Written in the
// transaction that writes the machine's NICs.
type MAC struct {
	Meta
	Spec MACSpec `json:"spec"`
}

// MACSpec says whose the MAC is.
type MACSpec struct {
	Machine string `json:"machine"`
}

// CanonicalMAC gives a MAC's one form: lower case with colons. Only 48-bit Ethernet unicast addresses are taken.
func CanonicalMAC(s string) (string, error) {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '-' })
	hw, err := hex.DecodeString(strings.Join(parts, ""))
	twoDigits := !slices.ContainsFunc(parts, func(part string) bool { return len(part) != 2 })
	if err != nil || len(parts) != 6 || len(s) != 17 || !twoDigits {
		return "", fmt.Errorf("%q is not a MAC address; write 52:54:00:12:34:56", s)
	}
	if hw[0]&1 != 0 {
		return "", fmt.Errorf("%q is a multicast address, not a machine's", s)
	}
	return strings.ToLower(strings.Join(parts, ":")), nil
}

// Validate checks a machine by itself.
func (m *Machine) Validate() error {
	var p problems
	p.name(m.Name)
	p.oneOf("spec.arch", m.Spec.Arch, "", "amd64", "arm64")
	seen := map[string]bool{}
	for i, nic := range m.Spec.NICs {
		field := fmt.Sprintf("spec.nics[%d].mac", i)
		mac, err := CanonicalMAC(nic.MAC)
		switch {
		case err != nil:
			p.add(field, "%v", err)
		case mac != nic.MAC:
			p.add(field, "%q must be written %q", nic.MAC, mac)
		case seen[mac]:
			p.add(field, "%q stands twice", mac)
		}
		seen[mac] = true
	}
	p.max("spec.nics", len(m.Spec.NICs), 64)
	p.wrap(m.Spec.Disk.Validate("spec.disk"))
	if strings.ContainsAny(m.Spec.Journal, " \t\n") {
		p.add("spec.journal", "holds a space")
	}
	for i, arg := range m.Spec.KernelArgs {
		if arg == "" || strings.ContainsAny(arg, " \t\n\"\\") || len(arg) > 256 {
			p.add(fmt.Sprintf("spec.kernelArgs[%d]", i), "must be one word of at most 256 bytes without quotes")
		}
	}
	p.max("spec.kernelArgs", len(m.Spec.KernelArgs), 32)
	if b := m.Spec.BMC; b != nil {
		p.oneOf("spec.bmc.protocol", b.Protocol, "ipmi", "redfish")
		p.need("spec.bmc.address", b.Address)
		p.need("spec.bmc.secret", b.Secret)
	}
	return p.err()
}

// HasMAC says whether one of the machine's ports has this canonical MAC.
func (m *Machine) HasMAC(mac string) bool {
	return slices.ContainsFunc(m.Spec.NICs, func(n NIC) bool { return n.MAC == mac })
}

// Validate checks a MAC's record by itself.
func (m *MAC) Validate() error {
	var p problems
	if mac, err := CanonicalMAC(m.Name); err != nil || mac != m.Name {
		p.add("name", "%q is not a MAC address in lower case with colons", m.Name)
	}
	p.need("spec.machine", m.Spec.Machine)
	return p.err()
}
