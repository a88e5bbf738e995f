package trivet

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// plain refuses a text that is too long, or has control characters: it is one line.
func (p *problems) plain(field, text string, limit int) {
	p.bytes(field, text, limit)
	if strings.ContainsFunc(text, unicode.IsControl) {
		p.add(field, "%.80q has a control character; write one line of text", text)
	}
}

// plainLabels refuses control characters in labels, besides the line breaks that [ValidateLabels] refuses.
func (p *problems) plainLabels(labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if value := labels[key]; strings.ContainsFunc(value, unicode.IsControl) && !strings.ContainsAny(value, "\n\r") {
			p.add("labels."+key, "%.80q has a control character; write one line of text", value)
		}
	}
}

func (m *Machine) validateWritten(p *problems) {
	p.plain("spec.rack", m.Spec.Rack, 256)
	if j := m.Spec.Journal; j != "" && !strings.HasPrefix(j, "/") && !strings.ContainsAny(j, " \t\n") {
		p.add("spec.journal", "%.80q is no device and no file; write one such as /dev/disk/by-label/journal", j)
	}
	for i, arg := range m.Spec.KernelArgs {
		if strings.ContainsFunc(arg, unicode.IsControl) && !strings.ContainsAny(arg, "\t\n") {
			p.add(fmt.Sprintf("spec.kernelArgs[%d]", i), "%.80q has a control character", arg)
		}
	}
	for i, nic := range m.Spec.NICs {
		if nic.MAC == "00:00:00:00:00:00" {
			p.add(fmt.Sprintf("spec.nics[%d].mac", i), "%q is the address of no port; write one such as 52:54:00:12:34:56",
				nic.MAC)
		}
		if a := nic.Address; a.Is4() && !ofHost(a) {
			p.add(fmt.Sprintf("spec.nics[%d].address", i), "%s is the address of no host; write one such as 10.0.0.9", a)
		}
	}
	m.Spec.BMC.validateWritten(p)
}

// notOfHosts are the addresses that no subnet of machines has: those of "this network", multicast and beyond.
var notOfHosts = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3")}

// validateSubnet checks the subnet and its router.
func (n *Network) validateSubnet(p *problems) {
	s := &n.Spec
	if !s.CIDR.IsValid() || !s.CIDR.Addr().Is4() {
		return
	}
	if i := slices.IndexFunc(notOfHosts, s.CIDR.Overlaps); i >= 0 {
		p.add("spec.cidr", "%s has addresses of %s, which no machine can have; write a subnet such as 10.0.0.0/24", s.CIDR,
			notOfHosts[i])
	}
	if s.Lease > maxLease {
		p.add("spec.lease", "is %s; at most %s", s.Lease, maxLease)
	}
	g := s.Gateway
	if !g.IsValid() || !s.CIDR.Contains(g) {
		return
	}
	if s.CIDR.Bits() <= 30 && (g == s.CIDR.Masked().Addr() || g == lastOf(s.CIDR)) {
		p.add("spec.gateway", "%s is an end of the subnet %s, which no host has; write the address of the router", g, s.CIDR)
	}
	for i, r := range s.Ranges {
		if s.Assigns() && r.From.IsValid() && r.To.IsValid() && !g.Less(r.From) && !r.To.Less(g) {
			p.add("spec.gateway", "%s is in spec.ranges[%d], %s to %s, which is leased to machines; begin the range after it, "+
				"or end it before", g, i, r.From, r.To)
		}
	}
}

// maxLease is the longest lease that DHCP can announce, but for the one that never ends.
const maxLease = Duration(1<<32-2) * 1e9

// servers validates a list of servers of a network.
func (p *problems) servers(field string, list []netip.Addr) {
	for i, a := range list {
		switch at := fmt.Sprintf("%s[%d]", field, i); {
		case !ofHost(a):
			p.add(at, "%s is the address of no host; write that of the server", a)
		case slices.Contains(list[:i], a):
			p.add(at, "%s appears twice", a)
		}
	}
}

// The keys of the secret of a BMC, or of a server that has users.
const (
	SecretUser     = "user"
	SecretPassword = "password"
)

func (s *Secret) validateWritten(p *problems) {
	for _, key := range []string{SecretUser, SecretPassword} {
		if value := s.Spec.Data[key]; strings.ContainsFunc(value, unicode.IsControl) { // the value is in no message
			p.add("spec.data."+key, "has a line break or another control character; write it without, as one text in quotes")
		}
	}
}
