package trivet

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Hosts that a client writes: of BMCs, and of the servers that events are sent to.

var (
	bmcHost = regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`)
	// numberForm is what the last label of a name cannot be: a host that ends with it is meant as an IPv4 address.
	numberForm = regexp.MustCompile(`^([0-9]+|0[xX][0-9A-Fa-f]*)$`)
)

// hostPort validates a host, or host:port.
func (p *problems) hostPort(field, text string) {
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		p.hostAddress(field, a)
		return
	}
	if to, err := netip.ParseAddrPort(text); err == nil && to.Port() > 0 {
		p.hostAddress(field, to.Addr())
		return
	}
	host, port, hasPort := strings.Cut(text, ":")
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0) {
		p.noHost(field, text)
		return
	}
	p.hostName(field, strings.TrimSuffix(host, "."))
}

func (p *problems) noHost(field, text string) {
	p.add(field, "%.100q is no host; write an address or a name, and a port from 1 to 65535 after a colon if needed", text)
}

// hostName validates a host that is no address.
func (p *problems) hostName(field, host string) {
	labels := strings.Split(host, ".")
	switch last := labels[len(labels)-1]; {
	case !bmcHost.MatchString(host) || slices.Contains(labels, ""):
		p.noHost(field, host)
	case numberForm.MatchString(last):
		p.add(field, "%.100q is no IPv4 address, which has four numbers from 0 to 255; write one such as 10.0.8.9", host)
	case len(host) > 253 || slices.ContainsFunc(labels, func(label string) bool { return len(label) > 63 }):
		p.add(field, "%.100q is too long for a name: at most 253 bytes, and 63 between dots", host)
	}
}

// hostAddress refuses an address that no host has.
func (p *problems) hostAddress(field string, a netip.Addr) {
	if !ofHost(a) {
		p.add(field, "%s is the address of no host; write that of the host", a)
	}
}

// ofHost reports whether one host can have an address.
func ofHost(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

func (n *Notifier) validateWritten(p *problems) {
	if w := n.Spec.Webhook; w != nil && w.URL != "" && problemOfURL(w.URL) == "" {
		if u, err := url.Parse(w.URL); err == nil {
			p.hostPort("spec.webhook.url", u.Host)
		}
	}
	if m := n.Spec.Mail; m != nil && m.Server != "" {
		p.hostPort("spec.mail.server", m.Server)
	}
}
