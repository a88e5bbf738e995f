package trivet

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Network is a subnet from which machines boot.
type Network struct {
	Meta
	Spec   NetworkSpec  `json:"spec"`
	Status SharedStatus `json:"status,omitzero"`
}

// NetworkSpec configures a subnet.
type NetworkSpec struct {
	CIDR    netip.Prefix `json:"cidr"`             // such as 10.0.0.0/24; IPv4 only
	Gateway netip.Addr   `json:"gateway,omitzero"` // default router of the machines
	DNS     []netip.Addr `json:"dns,omitempty"`    // name servers of the machines
	NTP     []netip.Addr `json:"ntp,omitempty"`    // time servers of the machines
	Domain  string       `json:"domain,omitempty"` // DNS domain of the machines
	MTU     int          `json:"mtu,omitempty"`    // of the machines' ports; 0 means not announced
	// Ranges are leased to machines without a fixed address.
	Ranges []Range `json:"ranges,omitempty"`
	// DHCP is "server", "proxy" (another server leases addresses, Trivet adds only what to boot) or "off".
	DHCP string `json:"dhcp,omitempty"`
	// Unknown is how a machine without a record is handled: "enrol", "ignore" (no response) or "address-only" (it gets
	// an address and is not enrolled).
	Unknown string `json:"unknown,omitempty"`
	// BootHTTPS makes UEFI firmware that boots by HTTP load by HTTPS, and so does iPXE that was built with HTTPS: it must
	// trust the boot CA of the cluster, which "trivet ca export" writes.
	BootHTTPS bool `json:"bootHTTPS,omitempty"`
	// Lease is the lease time of an address. Unknown machines get at most 10 minutes.
	Lease Duration `json:"lease,omitempty"`
	// NewClients is how many unknown machines may get an address per second from one head. A few hundred more may do so at
	// once.
	NewClients int `json:"newClients,omitempty"`
}

// DHCPOrDefault returns DHCP, or its default where it is empty. Each field with a default has such a method: all code
// reads the field by it, and the reference of records is written from it.
func (s *NetworkSpec) DHCPOrDefault() string { return cmp.Or(s.DHCP, "server") }

// UnknownOrDefault returns Unknown, or its default.
func (s *NetworkSpec) UnknownOrDefault() string { return cmp.Or(s.Unknown, "enrol") }

// LeaseOrDefault returns Lease, or its default.
func (s *NetworkSpec) LeaseOrDefault() Duration { return cmp.Or(s.Lease, Duration(24*time.Hour)) }

// NewClientsOrDefault returns NewClients, or its default.
func (s *NetworkSpec) NewClientsOrDefault() int { return cmp.Or(s.NewClients, 20) }

// Range is a range of addresses, both ends included.
type Range struct {
	From netip.Addr `json:"from"` // the first address
	To   netip.Addr `json:"to"`   // the last address
	// Use is "" for any machine, "known" or "discovery" for known or unknown machines only.
	Use string `json:"use,omitempty"`
}

func (p *problems) needAddress(field string, a netip.Addr, which string) {
	if !a.IsValid() {
		p.add(field, "is missing; write the %s address of the range", which)
	}
}

// lastOf returns the last address of a subnet.
func lastOf(subnet netip.Prefix) netip.Addr {
	last := subnet.Masked().Addr().AsSlice()
	for bit := subnet.Bits(); bit < 8*len(last); bit++ {
		last[bit/8] |= 1 << (7 - bit%8)
	}
	a, _ := netip.AddrFromSlice(last)
	return a
}

// Address is an address in use. Its name is the address, so it cannot be assigned twice.
type Address struct {
	Meta
	Spec   AddressSpec   `json:"spec"`
	Status AddressStatus `json:"status,omitzero"`
}

// AddressSpec is the owner of the address.
type AddressSpec struct {
	Network    string `json:"network"`              // the Network record
	MAC        string `json:"mac,omitempty"`        // the port that has it
	Machine    string `json:"machine,omitempty"`    // empty for the lease of an unknown machine
	MachineUID string `json:"machineUID,omitempty"` // of that machine
	// Fixed addresses are never reclaimed.
	Fixed bool `json:"fixed,omitempty"`
	// Provision is the provision that the address follows from a machine that failed to the next one. Until that one is
	// claimed no port has the address.
	Provision    string `json:"provision,omitempty"`
	ProvisionUID string `json:"provisionUID,omitempty"` // of that provision
}

// AddressStatus is the state of the lease.
type AddressStatus struct {
	// Lasts is how long the lease lasts after this write; 0: it does not end. Each head counts it by its own monotonic
	// clock, from when it observed the write. It is longer than the client's lease, so that most renewals need no write.
	Lasts Duration `json:"lasts,omitempty"`
	// Until is when it ends by the wall clock of the head that wrote it, for people to read.
	Until time.Time `json:"until,omitzero"`
	// Released is set when the client returned the address: any other may have it at once.
	Released bool `json:"released,omitempty"`
	// Declined is set when the machine found the address in use by another host.
	Declined bool `json:"declined,omitempty"`
}

// Assigns reports whether Trivet assigns the network's addresses, and no other DHCP server.
func (s *NetworkSpec) Assigns() bool { return s.DHCPOrDefault() == "server" }

// Validate checks a network by itself.
func (n *Network) Validate() error {
	var p problems
	p.name(n.Name)
	s := &n.Spec
	switch {
	case !s.CIDR.IsValid():
		p.add("spec.cidr", "is missing; write a subnet such as 10.0.0.0/24")
		return p.err()
	case s.CIDR != s.CIDR.Masked():
		p.add("spec.cidr", "%s has bits set after its prefix; write %s", s.CIDR, s.CIDR.Masked())
		return p.err()
	}
	if !s.CIDR.Addr().Is4() {
		p.add("spec.cidr", "%s is not IPv4; IPv6 networks are not served yet", s.CIDR)
	}
	if s.Gateway.IsValid() && !s.CIDR.Contains(s.Gateway) {
		p.add("spec.gateway", "%s is not in %s; write the address of the router in that subnet", s.Gateway, s.CIDR)
	}
	p.max("spec.ranges", len(s.Ranges), 64)
	for i, r := range s.Ranges {
		field := fmt.Sprintf("spec.ranges[%d]", i)
		p.needAddress(field+".from", r.From, "first")
		p.needAddress(field+".to", r.To, "last")
		switch {
		case !r.From.IsValid() || !r.To.IsValid():
		case !s.CIDR.Contains(r.From) || !s.CIDR.Contains(r.To):
			p.add(field, "%s to %s is not in %s; write addresses from %s to %s", r.From, r.To, s.CIDR, s.CIDR.Addr(),
				lastOf(s.CIDR))
		case r.To.Less(r.From):
			p.add(field, "ends at %[1]s before it begins at %[2]s; write from: %[1]s, to: %[2]s", r.To, r.From)
		}
		p.oneOf(field+".use", r.Use, "", "known", "discovery")
	}
	p.oneOf("spec.dhcp", s.DHCP, "", "server", "proxy", "off")
	p.oneOf("spec.unknown", s.Unknown, "", "enrol", "ignore", "address-only")
	p.bytes("spec.domain", s.Domain, 253)
	if s.MTU != 0 && (s.MTU < 576 || s.MTU > 65535) {
		p.add("spec.mtu", "is %d; 576 to 65535", s.MTU)
	}
	if s.NewClients < 0 {
		p.add("spec.newClients", "is %d; at least 1, or 0 for the default", s.NewClients)
	}
	if s.Lease != 0 && s.Lease < Duration(time.Minute) {
		p.add("spec.lease", "is %s; at least 1m", s.Lease)
	}
	return p.err()
}

// Validate checks an address by itself.
func (a *Address) Validate() error {
	var p problems
	if ip, err := netip.ParseAddr(a.Name); err != nil || ip.String() != a.Name {
		p.add("name", "%q is not an address in its usual form", a.Name)
	}
	p.need("spec.network", a.Spec.Network)
	return p.err()
}
