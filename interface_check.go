package trivet

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// interfaces checks the interfaces of a machine, each by itself and against the others.
type interfaces struct {
	*problems
	machine *Machine
	names   map[string]bool
	macs    map[string]string // names of ports by MAC
	bonds   map[string]string // the first bond of each port
	vlans   map[VLAN]string
	has     map[netip.Addr]bool
	routes  map[Route]string // without Via
}

// Bounds of the interfaces of a machine.
const (
	maxInterfaces = 64
	maxPerFace    = 32 // addresses and routes, and ports of a bond
	maxFixed      = 32 // addresses of all interfaces of a machine: each is a key of the transactions that write it
)

// checkInterfaces checks the interfaces of the installed system.
func (m *Machine) checkInterfaces(p *problems) {
	p.max("spec.interfaces", len(m.Spec.Interfaces), maxInterfaces)
	c := interfaces{problems: p, machine: m, names: map[string]bool{}, macs: map[string]string{},
		bonds: map[string]string{}, vlans: map[VLAN]string{}, has: map[netip.Addr]bool{}, routes: map[Route]string{}}
	for i := range m.Spec.Interfaces {
		c.noteBond(&m.Spec.Interfaces[i])
	}
	for i := range m.Spec.Interfaces {
		face, field := &m.Spec.Interfaces[i], fmt.Sprintf("spec.interfaces[%d].", i)
		c.name(field+"name", face)
		c.kind(field, face)
		c.mtu(field+"mtu", face)
		if bond := c.bonds[face.Name]; bond != "" && face.MAC != "" {
			c.enslaved(field, face, bond)
			continue
		}
		c.addresses(field, face)
		c.gateway(field+"gateway", face)
		c.allRoutes(field, face)
		c.resolver(field, face)
	}
	if len(c.has) > maxFixed {
		p.add("spec.interfaces", "have %d addresses in all; at most %d", len(c.has), maxFixed)
	}
}

func (c *interfaces) noteBond(face *Interface) {
	if face.Bond == nil {
		return
	}
	for _, port := range face.Bond.Ports {
		if c.bonds[port] == "" {
			c.bonds[port] = face.Name
		}
	}
}

var (
	interfaceForm = regexp.MustCompile(`^[A-Za-z][-._A-Za-z0-9]*$`)
	// kernelName is a name that the kernel gives to ports in the order in which it finds them. Another port may have it
	// when a port is renamed.
	kernelName = regexp.MustCompile(`^eth[0-9]+$`)
	// noNames are names that Linux has another meaning for; boot is what the boot port is called that is no interface.
	noNames = []string{"lo", "all", "default", "bonding_masters", "boot"}
)

// maxInterfaceName is the length of a name in Linux, in bytes.
const maxInterfaceName = 15

// name checks the name by the rules of Linux, and of the programs that configure it.
func (c *interfaces) name(field string, face *Interface) {
	name := face.Name
	switch {
	case name == "":
		c.add(field, "is missing; write one such as lan0, bond0 or storage")
	case len(name) > maxInterfaceName:
		c.add(field, "%.40q has %d bytes; write one of at most %d", name, len(name), maxInterfaceName)
	case !interfaceForm.MatchString(name):
		c.add(field, "%q must begin with a letter, and have letters, digits, and - . _ only", name)
	case slices.Contains(noNames, name):
		c.add(field, "%q is reserved; write another one, such as lan0", name)
	case face.MAC != "" && kernelName.MatchString(name):
		c.add(field, "%q is a name that the kernel gives to any port; write another one, such as lan%s", name, name[3:])
	case c.names[name]:
		c.add(field, "%q appears twice", name)
	}
	c.names[name] = true
}

// kind checks what the interface is.
func (c *interfaces) kind(field string, face *Interface) {
	kinds := 0
	for _, is := range []bool{face.MAC != "", face.Bond != nil, face.VLAN != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		c.add(strings.TrimSuffix(field, "."), "must have one of mac, for a port, bond and vlan")
		return
	}
	switch {
	case face.Bond != nil:
		c.bond(field+"bond.", face)
	case face.VLAN != nil:
		c.vlan(field+"vlan.", face)
	default:
		c.port(field+"mac", face)
	}
}

func (c *interfaces) port(field string, face *Interface) {
	mac, err := CanonicalMAC(face.MAC)
	switch other := c.macs[mac]; {
	case err != nil:
		c.add(field, "%v", err)
		return
	case mac != face.MAC:
		c.add(field, "%q must be written %q", face.MAC, mac)
	case !c.machine.HasMAC(mac):
		c.add(field, "%s is no port of this machine; add it to spec.nics, or write one of %s", mac, c.machine.macs())
	case other != "":
		c.add(field, "%s is the port of interface %s already", mac, other)
	}
	c.macs[mac] = cmp.Or(face.Name, "without a name")
}

// macs lists the MACs of the machine's ports, for people.
func (m *Machine) macs() string {
	var all []string
	for _, nic := range m.Spec.NICs {
		all = append(all, nic.MAC)
	}
	if len(all) == 0 {
		return "those, of which there are none yet"
	}
	return strings.Join(all, ", ")
}

// modeLACP is the mode of bonds by LACP.
const modeLACP = "802.3ad"

func (c *interfaces) bond(field string, face *Interface) {
	b := face.Bond
	c.oneOf(field+"mode", b.Mode, "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
		"balance-alb")
	c.oneOf(field+"lacpRate", b.LACPRate, "", "slow", "fast")
	c.oneOf(field+"hashPolicy", b.HashPolicy, "", "layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4")
	if b.LACPRate != "" && !b.HasLACP() {
		c.add(field+"lacpRate", "is for mode %s only", modeLACP)
	}
	if b.HashPolicy != "" && !b.Hashes() {
		c.add(field+"hashPolicy", "is for modes balance-xor, %s and balance-tlb only", modeLACP)
	}
	if len(b.Ports) == 0 {
		c.add(field+"ports", "is missing; write the names of the interfaces that are its ports")
	}
	c.max(field+"ports", len(b.Ports), maxPerFace)
	for i, name := range b.Ports {
		c.bondPort(fmt.Sprintf("%sports[%d]", field, i), face, name, b.Ports[:i])
	}
}

// bondPort checks one port of a bond. before are those that are listed before it.
func (c *interfaces) bondPort(field string, bond *Interface, name string, before []string) {
	port := c.machine.Interface(name)
	switch {
	case port == nil:
		c.add(field, "names interface %.40q, which does not exist; add it to spec.interfaces, with its mac", name)
	case port.MAC == "":
		c.add(field, "names %s, which is no port; a bond consists of interfaces with a mac", name)
	case slices.Contains(before, name):
		c.add(field, "%q appears twice", name)
	case c.bonds[name] != bond.Name:
		c.add(field, "names %s, which is a port of %s; a port is in one bond", name, c.bonds[name])
	}
}

func (c *interfaces) vlan(field string, face *Interface) {
	v := face.VLAN
	if v.ID < 1 || v.ID > 4094 {
		c.add(field+"id", "is %d; write the VLAN's ID, 1 to 4094", v.ID)
	}
	switch link := c.machine.Interface(v.Link); {
	case v.Link == "":
		c.add(field+"link", "is missing; write the name of the port or bond that it is on")
	case link == nil:
		c.add(field+"link", "names interface %.40q, which does not exist; add it to spec.interfaces", v.Link)
	case link.VLAN != nil:
		c.add(field+"link", "names %s, which is a VLAN; write the port or bond that it is on", v.Link)
	case link.MAC != "" && c.bonds[v.Link] != "":
		c.add(field+"link", "names %s, which is a port of %s; write %[2]s", v.Link, c.bonds[v.Link])
	case c.vlans[*v] != "":
		c.add(field+"id", "%d on %s is interface %s already", v.ID, v.Link, c.vlans[*v])
	}
	c.vlans[*v] = cmp.Or(face.Name, "without a name")
}

// defaultMTU is the one of Ethernet.
const defaultMTU = 1500

func (c *interfaces) mtu(field string, face *Interface) {
	if face.MTU == 0 {
		return
	}
	if face.MTU < 576 || face.MTU > 65535 {
		c.add(field, "is %d; 576 to 65535", face.MTU)
	}
	if face.VLAN == nil {
		return
	}
	link := c.machine.Interface(face.VLAN.Link)
	if link == nil || face.MTU <= cmp.Or(link.MTU, defaultMTU) {
		return
	}
	c.add(field, "is %d, which is more than %s has; write mtu: %[1]d there, too", face.MTU, link.Name)
}

// enslaved refuses what a port of a bond cannot have.
func (c *interfaces) enslaved(field string, face *Interface, bond string) {
	for _, set := range []struct {
		name string
		is   bool
	}{
		{"mtu", face.MTU != 0}, {"addresses", len(face.Addresses) > 0}, {"dhcp", face.DHCP},
		{"noAddress", face.NoAddress}, {"gateway", face.Gateway.IsValid()}, {"routes", len(face.Routes) > 0},
		{"dns", len(face.DNS) > 0}, {"domain", face.Domain != ""},
	} {
		if set.is {
			c.add(field+set.name, "must not be set for a port of a bond; write it in interface %s", bond)
		}
	}
}

func (c *interfaces) addresses(field string, face *Interface) {
	if face.DHCP && len(face.Addresses) > 0 {
		c.add(field+"dhcp", "excludes addresses; write one of them")
	}
	if face.NoAddress && (face.DHCP || len(face.Addresses) > 0) {
		c.add(field+"noAddress", "excludes dhcp and addresses; write one of them")
	}
	c.max(field+"addresses", len(face.Addresses), maxPerFace)
	for i, a := range face.Addresses {
		c.address(fmt.Sprintf("%saddresses[%d]", field, i), face, a)
		c.has[a.Addr()] = true
	}
}

func (c *interfaces) address(field string, face *Interface, a netip.Prefix) {
	switch {
	case !a.IsValid():
		c.add(field, "is missing; write one such as 10.20.0.11/24")
	case !a.Addr().Is4():
		c.add(field, "%s is not IPv4; for IPv6 write spec.networkData of the provision", a)
	case !isHost(a):
		c.add(field, "%s is no address of a host: an end of its subnet, or reserved; write one such as 10.20.0.11/24", a)
	case c.has[a.Addr()]:
		c.add(field, "%s appears twice", a.Addr())
	default:
		c.otherPort(field, face, a.Addr())
	}
}

// isHost reports whether a host may have an address in its subnet.
func isHost(p netip.Prefix) bool {
	a := p.Addr()
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || p.Bits() == 0 {
		return false
	}
	return p.Bits() >= 31 || a != p.Masked().Addr() && p.Contains(a.Next())
}

// otherPort refuses the fixed address of a port of which the interface does not consist.
func (c *interfaces) otherPort(field string, face *Interface, a netip.Addr) {
	for i, nic := range c.machine.Spec.NICs {
		if nic.Address != a || face.MAC == nic.MAC {
			continue
		}
		own := slices.ContainsFunc(c.machine.Spec.Interfaces, func(o Interface) bool {
			return o.MAC == nic.MAC && face.Bonds(o.Name)
		})
		if !own {
			c.add(field, "%s is the address of spec.nics[%d], another port", a, i)
		}
	}
}

// reaches reports whether an address is in the subnet of one of the interface's addresses.
func (i *Interface) reaches(a netip.Addr) bool {
	return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Contains(a) && p.Addr() != a })
}

func (i *Interface) subnets() string {
	var all []string
	for _, a := range i.Addresses {
		all = append(all, a.Masked().String())
	}
	return strings.Join(all, ", ")
}

// notReached refuses a router that the interface cannot reach.
func (c *interfaces) notReached(field string, face *Interface, router netip.Addr) {
	if slices.ContainsFunc(face.Addresses, func(p netip.Prefix) bool { return p.Addr() == router }) {
		c.add(field, "%s is the interface itself; write the address of the router", router)
		return
	}
	c.add(field, "%s is not in %s; write the address of the router in that subnet", router, face.subnets())
}

func (c *interfaces) gateway(field string, face *Interface) {
	g := face.Gateway
	switch {
	case !g.IsValid():
		return
	case len(face.Addresses) == 0:
		c.add(field, "needs addresses: where an interface has none, the boot network or DHCP has the gateway")
	case !face.reaches(g):
		c.notReached(field, face, g)
	}
	c.destination(field, face, Route{To: DefaultRoute})
}

func (c *interfaces) allRoutes(field string, face *Interface) {
	c.max(field+"routes", len(face.Routes), maxPerFace)
	if len(face.Routes) > 0 && len(face.Addresses) == 0 && !face.DHCP && (face.NoAddress || face.VLAN != nil) {
		c.add(field+"routes", "need addresses or dhcp: without an address no router is reached")
	}
	for i, r := range face.Routes {
		c.route(fmt.Sprintf("%sroutes[%d].", field, i), face, r)
	}
}

func (c *interfaces) route(field string, face *Interface, r Route) {
	switch {
	case !r.To.IsValid():
		c.add(field+"to", "is missing; write a subnet such as 10.30.0.0/16, or 0.0.0.0/0 for a default route")
	case !r.To.Addr().Is4():
		c.add(field+"to", "%s is not IPv4; for IPv6 write spec.networkData of the provision", r.To)
	case r.To != r.To.Masked():
		c.add(field+"to", "%s has bits set after its prefix; write %s", r.To, r.To.Masked())
	default:
		c.destination(field+"to", face, r)
	}
	switch {
	case !r.Via.IsValid():
		c.add(field+"via", "is missing; write the address of the router")
	case !r.Via.Is4():
		c.add(field+"via", "%s is not IPv4", r.Via)
	case len(face.Addresses) > 0 && !face.reaches(r.Via):
		c.notReached(field+"via", face, r.Via)
	}
	if r.Metric < 0 || int64(r.Metric) > maxMetric {
		c.add(field+"metric", "is %d; 0 to %d", r.Metric, int64(maxMetric))
	}
}

const maxMetric = 1<<32 - 1

// destination refuses two routes to one destination with the same metric: the kernel has one of them.
func (c *interfaces) destination(field string, face *Interface, r Route) {
	key := Route{To: r.To, Metric: r.Metric}
	if other, twice := c.routes[key]; twice {
		c.add(field, "is a second route to %s with metric %d, beside that of interface %s; write routes with a metric",
			r.To, r.Metric, other)
	}
	c.routes[key] = face.Name
}

func (c *interfaces) resolver(field string, face *Interface) {
	c.max(field+"dns", len(face.DNS), maxPerFace)
	for i, a := range face.DNS {
		if !a.Is4() {
			c.add(fmt.Sprintf("%sdns[%d]", field, i), "%s is not an IPv4 address", a)
		}
	}
	c.bytes(field+"domain", face.Domain, 253)
	if face.Domain != "" && !domainForm.MatchString(face.Domain) {
		c.add(field+"domain", "%.80q is no DNS domain; write one such as lab.example.org", face.Domain)
	}
}
