package trivet

import (
	"cmp"
	"net/netip"
	"slices"
)

// Interface is a network interface of the system that is installed on a machine: a port, a bond of ports, or a VLAN on
// one of these. It has one of MAC, Bond and VLAN.
type Interface struct {
	// Name is its name in the installed system, such as "lan0": at most 15 bytes. It is the list's key.
	Name string `json:"name"`
	// MAC is the port that it is: one of the machine's NICs.
	MAC  string `json:"mac,omitempty"`
	Bond *Bond  `json:"bond,omitempty"` // the ports that it consists of
	VLAN *VLAN  `json:"vlan,omitempty"` // the VLAN that it is
	// MTU is the size of its packets; 0: of the boot port, what its network announces, and of others the default. A
	// bond's ports have the bond's.
	MTU int `json:"mtu,omitempty"`
	// Addresses are its IPv4 addresses with the lengths of their prefixes, such as 10.20.0.11/24. No other machine may
	// have one of them. Without any, and without DHCP, it has the address of the boot port if it is that port, or the
	// bond of that port, and none otherwise.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// DHCP makes it request an address, in place of Addresses.
	DHCP bool `json:"dhcp,omitempty"`
	// NoAddress leaves it without the address of the boot port: the boot network is for installations only.
	NoAddress bool `json:"noAddress,omitempty"`
	// Gateway is the default router, in the subnet of one of Addresses. Where one is set, that of the boot network is not
	// used.
	Gateway netip.Addr `json:"gateway,omitzero"`
	Routes  []Route    `json:"routes,omitempty"` // besides Gateway
	// DNS are name servers; of the boot port, in place of those of its network.
	DNS []netip.Addr `json:"dns,omitempty"`
	// Domain is the DNS domain in which names are searched; of the boot port, in place of that of its network.
	Domain string `json:"domain,omitempty"`
}

// Bond is a bond of ports.
type Bond struct {
	Ports []string `json:"ports"` // names of interfaces with MAC, each in one bond; the first one's MAC is the bond's
	// Mode is as the kernel names it: balance-rr, active-backup, balance-xor, broadcast, 802.3ad (LACP), balance-tlb or
	// balance-alb.
	Mode string `json:"mode"`
	// LACPRate is "slow" or "fast"; for mode 802.3ad.
	LACPRate string `json:"lacpRate,omitempty"`
	// HashPolicy distributes packets: layer2, layer2+3, layer3+4, encap2+3 or encap3+4; for modes balance-xor, 802.3ad and
	// balance-tlb.
	HashPolicy string `json:"hashPolicy,omitempty"`
}

// LACPRateOrDefault returns LACPRate, or its default.
func (b *Bond) LACPRateOrDefault() string { return cmp.Or(b.LACPRate, "slow") }

// HashPolicyOrDefault returns HashPolicy, or its default.
func (b *Bond) HashPolicyOrDefault() string { return cmp.Or(b.HashPolicy, "layer2") }

// HasLACP reports whether the mode of the bond has a rate of LACP.
func (b *Bond) HasLACP() bool { return b.Mode == modeLACP }

// Hashes reports whether the mode of the bond distributes packets by HashPolicy.
func (b *Bond) Hashes() bool {
	return slices.Contains([]string{"balance-xor", modeLACP, "balance-tlb"}, b.Mode)
}

// VLAN is a tagged VLAN.
type VLAN struct {
	Link string `json:"link"` // name of the port or bond that it is on
	ID   int    `json:"id"`   // 1 to 4094
}

// Route is a static route.
type Route struct {
	To     netip.Prefix `json:"to"`               // such as 10.30.0.0/16; 0.0.0.0/0 for a default route
	Via    netip.Addr   `json:"via"`              // the router, in the subnet of one of the interface's addresses
	Metric int          `json:"metric,omitempty"` // the lowest one is used
}

// Bonds reports whether an interface is a bond with a port.
func (i *Interface) Bonds(port string) bool {
	return i.Bond != nil && slices.Contains(i.Bond.Ports, port)
}

// DefaultRoute is the destination of a default route.
var DefaultRoute = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// FixedAddresses returns the addresses that are fixed for the machine, each once: of its ports and its interfaces.
func (m *Machine) FixedAddresses() (all []netip.Addr) {
	for _, nic := range m.Spec.NICs {
		if nic.Address.IsValid() && !slices.Contains(all, nic.Address) {
			all = append(all, nic.Address)
		}
	}
	for i := range m.Spec.Interfaces {
		for _, a := range m.Spec.Interfaces[i].Addresses {
			if a.IsValid() && !slices.Contains(all, a.Addr()) {
				all = append(all, a.Addr())
			}
		}
	}
	return all
}

// PortOf returns the MAC of the port through which the machine has a fixed address; empty if it does not have it.
func (m *Machine) PortOf(a netip.Addr) (mac string) {
	for _, nic := range m.Spec.NICs {
		if nic.Address == a {
			return nic.MAC
		}
	}
	for i := range m.Spec.Interfaces {
		face := &m.Spec.Interfaces[i]
		if slices.ContainsFunc(face.Addresses, func(p netip.Prefix) bool { return p.Addr() == a }) {
			return m.portBelow(face, 0)
		}
	}
	return ""
}

// portBelow returns the MAC of the port that an interface is or is on.
func (m *Machine) portBelow(face *Interface, depth int) string {
	below := ""
	switch {
	case face.MAC != "" || depth > 2: // a VLAN on a bond of ports is the most
		return face.MAC
	case face.VLAN != nil:
		below = face.VLAN.Link
	case face.Bond != nil && len(face.Bond.Ports) > 0:
		below = face.Bond.Ports[0]
	}
	if next := m.Interface(below); next != nil {
		return m.portBelow(next, depth+1)
	}
	return ""
}

// Interface returns the interface with a name; nil if there is none.
func (m *Machine) Interface(name string) *Interface {
	for i := range m.Spec.Interfaces {
		if m.Spec.Interfaces[i].Name == name {
			return &m.Spec.Interfaces[i]
		}
	}
	return nil
}
