package trivet

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Machine is a physical machine. Its name is chosen by the operator, or "m-" and the MAC if it enrolled itself.
type Machine struct {
	Meta
	Spec   MachineSpec   `json:"spec"`
	Status MachineStatus `json:"status,omitzero"`
}

// MachineSpec is the desired state of a machine.
type MachineSpec struct {
	// Arch is "amd64" or "arm64"; empty means what the firmware reports.
	Arch string `json:"arch,omitempty"`
	// NICs are the ports it may boot from. A MAC belongs to one machine (see [MAC]).
	NICs []NIC `json:"nics,omitempty"`
	// Interfaces are the network interfaces of the installed system: ports by name, bonds and VLANs. A boot port that is
	// none of them is configured by its network. Netboot does not depend on them.
	Interfaces []Interface `json:"interfaces,omitempty"`
	// BMC is the management controller that powers the machine on and off; optional.
	BMC *BMC `json:"bmc,omitempty"`
	// Disk selects the disk that installs write to; empty means the smallest fixed one (see [DiskHints]).
	Disk DiskHints `json:"disk,omitzero"`
	// Journal is a device or file of the machine that keeps the agent's journal across resets; empty means memory only.
	Journal string `json:"journal,omitempty"`
	// Platform is the kernel and initramfs that it netboots; empty means the site's.
	Platform string `json:"platform,omitempty"`
	// KernelArgs are added to the installer's kernel command line, such as "console=ttyS0".
	KernelArgs []string `json:"kernelArgs,omitempty"`
	Rack       string   `json:"rack,omitempty"` // location of the machine, for people
	// Cordoned excludes the machine from placement.
	Cordoned bool `json:"cordoned,omitempty"`
}

// Arch returns the architecture of the machine, as it was found, or as the record has it; empty: it is not known.
func (m *Machine) Arch() string {
	if m.Status.Inventory != nil && m.Status.Inventory.Arch != "" {
		return m.Status.Inventory.Arch
	}
	return m.Spec.Arch
}

// NIC is a network port.
type NIC struct {
	MAC string `json:"mac"` // lower case, colons; the list's key
	// Address is a fixed IPv4 address of this port, and of no other; empty means one of its network's ranges.
	Address netip.Addr `json:"address,omitzero"`
}

// BMC is the address of a machine's management controller, and the credentials for it.
type BMC struct {
	Protocol string `json:"protocol"` // "ipmi", "redfish" or "exec"
	// Command is the program of protocol exec: a file in the directory of --power-commands of each head.
	Command string `json:"command,omitempty"`
	// Host, host:port or https URL, which no other machine has. Of a Redfish service with several systems it has the path
	// of the machine's, as "https://10.0.8.9/redfish/v1/Systems/2".
	Address string `json:"address"`
	// Secret is the Secret with keys user and password, as "NAME" or "PROJECT/NAME". It names the addresses that it may
	// be sent to.
	Secret string `json:"secret"`
	// Console collects, during each run, what the machine writes to its serial console: for protocols ipmi, and redfish
	// where the service offers it by SSH. BMCs permit one session, so it is off by default. Those who may read the logs
	// of runs may read it.
	Console bool `json:"console,omitempty"`
}

// RedfishConsoleRelease is the release since which Console may be set for protocol redfish. A head of an earlier one
// cannot write the record of such a machine.
const RedfishConsoleRelease Release = "0.3.1"

// MachineState is the state of a machine.
type MachineState string

// The states of a machine. Placement claims available machines only, and no machine that was installed becomes
// available while its system may still run (internal/workflow has the rules).
const (
	MachineDiscovered   MachineState = "discovered"   // enrolled itself; not accepted yet
	MachineAvailable    MachineState = "available"    // may be claimed: what is on its disks may be overwritten
	MachineClaimed      MachineState = "claimed"      // has a workflow; has not booted for it yet
	MachineProvisioning MachineState = "provisioning" // its agent was granted the run
	MachineActive       MachineState = "active"       // runs its installed system
	MachineReleasing    MachineState = "releasing"    // not claimed; its former system may still run
	MachineQuarantined  MachineState = "quarantined"  // excluded from placement; see Reason
	MachineUnverified   MachineState = "unverified"   // not claimed: unknown what runs on it, after a recovery
)

// MachineStatus is the observed state of a machine.
type MachineStatus struct {
	State  MachineState `json:"state,omitempty"`
	Reason string       `json:"reason,omitempty"` // why it is in its state
	// Former is the state that a quarantined machine returns to when it is accepted.
	Former MachineState `json:"former,omitempty"`
	// Workflow is the machine's current or last run, Provision the request that it serves: "NAME", or "PROJECT/NAME"
	// outside the default project. Both are empty when unclaimed.
	Workflow  string `json:"workflow,omitempty"`
	Provision string `json:"provision,omitempty"` // the provision that claimed the machine
	// Epoch increases with every grant to a new agent and with every remedy. Requests of an older epoch are refused.
	Epoch int64 `json:"epoch,omitempty"`
	// AgentKey is the Ed25519 public key (base64) of the agent that was granted Epoch.
	AgentKey string `json:"agentKey,omitempty"`
	// AgentRelease is the release of that agent, recorded since all heads have 0.3.1; empty: an earlier one.
	AgentRelease Release `json:"agentRelease,omitempty"`
	// BootID identifies one boot of the agent's system.
	BootID    string     `json:"bootID,omitempty"`
	Inventory *Inventory `json:"inventory,omitempty"`
	// Power is the last known state: "on", "off" or empty. A head reads it from the BMC about every 10 minutes; of more
	// than 30,000 machines less often.
	Power string `json:"power,omitempty"`
	// PowerError says why the BMC does not report the power, so that Power may be out of date; none: it does.
	PowerError *PowerError `json:"powerError,omitempty"`
	// Intent is the pending command to the BMC; removed once the BMC's state shows its effect.
	Intent *PowerIntent `json:"intent,omitempty"`
	// PowerHead is the head that held an intent which was removed, until it confirms that it no longer talks to the
	// BMC. It holds the next intent, too.
	PowerHead string `json:"powerHead,omitempty"`
	// Warned has, by the reason of a warning about a boot, the epoch under which it was recorded last. It is recorded
	// once per epoch, however often its cause is repeated.
	Warned map[string]int64 `json:"warned,omitempty"`
	// Events counts all events of this machine so far (see [Event]).
	Events int64 `json:"events,omitempty"`
	// HoldsData says whose data is on the disks of a machine that was released to keep it. No selector chooses the machine
	// then: a provision that names it, a release that wipes it or trivet accept ends that.
	HoldsData string `json:"holdsData,omitempty"`
	// Activated is the time of the installed system's first phone-home.
	Activated time.Time `json:"activated,omitzero"`
	// Reputation is how often its runs have failed lately.
	Reputation *Reputation `json:"reputation,omitempty"`
	// FormerNames are the names that it had before it was renamed, the last one first: at most [MaxFormerNames]. Its older
	// events and runs have them.
	FormerNames []string `json:"formerNames,omitempty"`
}

// PowerError is why the power of a machine is not known.
type PowerError struct {
	Cause string    `json:"cause"` // for people: the BMC, and how the reading of it failed the last time
	Since time.Time `json:"since"` // when that was recorded first; it was read before
}

// PowerErrorRelease is the release that added PowerError to the status of machines.
const PowerErrorRelease Release = "0.3.1"

// MaxFormerNames is how many former names of a machine are kept.
const MaxFormerNames = 8

// RenameRelease is the release that added the renaming of machines. The agent of a machine has its former name until a
// head has responded to it, and heads of an earlier release would refuse that.
const RenameRelease Release = "0.3.1"

// RenameRequest gives a machine another name.
type RenameRequest struct {
	// Name is the new name, which no machine has.
	Name string `json:"name"`
	// UID is that of the machine, so that a later one of its name is not renamed; empty: it is not compared.
	UID string `json:"uid,omitempty"`
}

// Validate checks the request by itself.
func (r *RenameRequest) Validate() error { return ValidateName(r.Name) }

// PowerIntent is written before a command is sent to a BMC, because a BMC cannot refuse one that is out of date: the
// head that acts on an intent holds it, and a head that takes it over waits until that hold has expired and reads the
// BMC's state first. Its times are by the clock of the head that wrote them. They distinguish one intent and one hold
// from another; heads measure by their own clocks from when they read them.
type PowerIntent struct {
	Want string `json:"want"` // "on", "off" or "cycle"
	Boot string `json:"boot"` // "network" or "disk", for the next boot only
	// Off is set once the machine was off during a cycle.
	Off   bool      `json:"off,omitempty"`
	Until time.Time `json:"until"` // when it expires
	// Head is the head that talks to the BMC, until Held: what it sent by then may take effect a little later.
	Head string    `json:"head,omitempty"`
	Held time.Time `json:"held,omitzero"` // until when Head holds it
}

// Inventory is the hardware that the agent found.
type Inventory struct {
	Arch     string `json:"arch,omitempty"`     // "amd64" or "arm64"
	Vendor   string `json:"vendor,omitempty"`   // of the system, by SMBIOS
	Product  string `json:"product,omitempty"`  // of the system, by SMBIOS
	Serial   string `json:"serial,omitempty"`   // of the system, by SMBIOS
	UUID     string `json:"uuid,omitempty"`     // of the system, by SMBIOS
	Firmware string `json:"firmware,omitempty"` // "bios" or "uefi"
	// FirmwareVersion and FirmwareDate are of the BIOS or UEFI, by SMBIOS.
	FirmwareVersion string    `json:"firmwareVersion,omitempty"`
	FirmwareDate    string    `json:"firmwareDate,omitempty"` // as SMBIOS has it: "03/14/2025"
	CPU             string    `json:"cpu,omitempty"`          // model
	Cores           int       `json:"cores,omitempty"`        // logical processors
	MemoryMB        int64     `json:"memoryMB,omitempty"`     // size of the memory
	Disks           []Disk    `json:"disks,omitempty"`
	NICs            []NICInfo `json:"nics,omitempty"`
	BMC             string    `json:"bmc,omitempty"` // the BMC's address as the machine reports it
	// BMCVersion is the version of the BMC's firmware, as the machine reports it.
	BMCVersion string `json:"bmcVersion,omitempty"`
}

// Shorten drops the health of disks that do not fail, then disks, and then ports, from the ends of their lists until
// the inventory has at most so many bytes of JSON: some machines have hundreds of disks.
func (i *Inventory) Shorten(bytes int) {
	for {
		text, err := json.Marshal(i)
		over := len(text) - bytes
		switch {
		case err != nil || over <= 0:
			return
		case slices.ContainsFunc(i.Disks, hasPassed):
			i.Disks = slices.Clone(i.Disks)
			for n := range i.Disks {
				if hasPassed(i.Disks[n]) {
					i.Disks[n].Health = nil
				}
			}
		case len(i.Disks) > 0:
			i.Disks = i.Disks[:shorter(len(i.Disks), over)]
		case len(i.NICs) > 0:
			i.NICs = i.NICs[:shorter(len(i.NICs), over)]
		default:
			return
		}
	}
}

func hasPassed(d Disk) bool { return d.Health != nil && d.Health.Passed }

// shorter returns how many of n entries stay if so many bytes must go. An entry has at most 500 bytes.
func shorter(n, over int) int { return max(0, n-1-over/500) }

// NICInfo is a network port of the inventory.
type NICInfo struct {
	Name   string `json:"name"`             // "eth0"
	MAC    string `json:"mac"`              // lower case, colons
	Link   bool   `json:"link,omitempty"`   // a cable is connected
	Driver string `json:"driver,omitempty"` // kernel driver
	// FirmwareVersion is the version of the port's firmware, as its driver reports it.
	FirmwareVersion string `json:"firmwareVersion,omitempty"`
}

// MAC reserves a MAC address for one machine. Its name is the address, so two machines cannot have it. It is written
// in the transaction that writes the machine's NICs.
type MAC struct {
	Meta
	Spec MACSpec `json:"spec"`
}

// MACSpec is the owner of the MAC.
type MACSpec struct {
	Machine    string `json:"machine"`              // the machine that has the port
	MachineUID string `json:"machineUID,omitempty"` // of that machine
}

// CanonicalMAC returns the canonical form of a MAC: lower case with colons. It accepts 48-bit Ethernet unicast
// addresses only.
func CanonicalMAC(s string) (string, error) {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '-' })
	hw, err := hex.DecodeString(strings.Join(parts, ""))
	twoDigits := !slices.ContainsFunc(parts, func(part string) bool { return len(part) != 2 })
	if err != nil || len(parts) != 6 || len(s) != 17 || !twoDigits {
		return "", fmt.Errorf("%q is not a MAC address; write 52:54:00:12:34:56", s)
	}
	if hw[0]&1 != 0 {
		return "", fmt.Errorf("%q is a multicast address; a NIC has a unicast address", s)
	}
	return strings.ToLower(strings.Join(parts, ":")), nil
}

// Validate checks a machine by itself.
func (m *Machine) Validate() error {
	var p problems
	p.name(m.Name)
	p.oneOf("spec.arch", m.Spec.Arch, "", "amd64", "arm64")
	m.checkNICs(&p)
	p.max("spec.nics", len(m.Spec.NICs), 64)
	m.checkInterfaces(&p)
	p.wrap(m.Spec.Disk.Validate("spec.disk"))
	if strings.ContainsAny(m.Spec.Journal, " \t\n") {
		p.add("spec.journal", "must not contain spaces")
	}
	for i, arg := range m.Spec.KernelArgs {
		if arg == "" || strings.ContainsAny(arg, " \t\n\"\\") || len(arg) > 256 {
			p.add(fmt.Sprintf("spec.kernelArgs[%d]", i), "must be one word of at most 256 bytes without quotes")
		}
	}
	p.max("spec.kernelArgs", len(m.Spec.KernelArgs), 32)
	m.Spec.BMC.validate(&p)
	return p.err()
}

func (b *BMC) validate(p *problems) {
	if b == nil {
		return
	}
	p.oneOf("spec.bmc.protocol", b.Protocol, "ipmi", "redfish", "exec")
	if b.Protocol == "exec" {
		p.need("spec.bmc.command", b.Command)
	} else if b.Command != "" {
		p.add("spec.bmc.command", "is for protocol exec only")
	}
	if b.Console && b.Protocol == "exec" {
		p.add("spec.bmc.console", "is for protocols ipmi and redfish only")
	}
	p.ref("spec.bmc.command", b.Command)
	if p.need("spec.bmc.address", b.Address); b.Address != "" && b.Host() == "" {
		p.add("spec.bmc.address", "has no host; write host, host:port or an https URL")
	}
	p.need("spec.bmc.secret", b.Secret)
	p.clusterRef("spec.bmc.secret", b.Secret)
}

// checkNICs checks the ports by themselves.
func (m *Machine) checkNICs(p *problems) {
	macs, addresses := map[string]bool{}, map[netip.Addr]bool{}
	for i, nic := range m.Spec.NICs {
		field := fmt.Sprintf("spec.nics[%d].", i)
		mac, err := CanonicalMAC(nic.MAC)
		switch {
		case nic.MAC == "":
			p.add(field+"mac", "is missing; write one such as 52:54:00:12:34:56")
		case err != nil:
			p.add(field+"mac", "%v", err)
		case mac != nic.MAC:
			p.add(field+"mac", "%q must be written %q", nic.MAC, mac)
		case macs[mac]:
			p.add(field+"mac", "%q appears twice", mac)
		}
		switch a := nic.Address; {
		case a.IsValid() && !a.Is4():
			p.add(field+"address", "%s is not an IPv4 address", a)
		case a.IsValid() && addresses[a]:
			p.add(field+"address", "%s appears twice", a)
		}
		macs[mac], addresses[nic.Address] = true, true
	}
}

// HasAddress reports whether an address is fixed for one of the machine's ports.
func (m *Machine) HasAddress(a netip.Addr) bool {
	return slices.ContainsFunc(m.Spec.NICs, func(n NIC) bool { return n.Address == a })
}

// HasMAC reports whether one of the machine's ports has this canonical MAC.
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
