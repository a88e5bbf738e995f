package osinit

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// Lease is a DHCP server's answer.
type Lease struct {
	Address netip.Prefix  `json:"address"`
	Gateway netip.Addr    `json:"gateway,omitzero"`
	Routes  []Route       `json:"routes,omitempty"` // classless static routes (RFC 3442); they replace Gateway
	DNS     []netip.Addr  `json:"dns,omitempty"`
	Domain  string        `json:"domain,omitempty"`
	MTU     int           `json:"mtu,omitempty"` // 0: the port's default
	Server  netip.Addr    `json:"server,omitzero"`
	Lasts   time.Duration `json:"lasts,omitempty"` // 0: forever
}

// Route is a route to a network; without Gateway it is on the link.
type Route struct {
	To      netip.Prefix `json:"to"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// Limits of a server's answer.
const (
	shortestLease = 30 * time.Second // shorter ones are renewed as if they lasted this long
	maxRoutes     = 32
	maxServers    = 4
	smallestMTU   = 576 // RFC 791
	largestMTU    = 9216
)

// leaseOf checks a lease. Invalid values other than the address are left out: the lease comes from the network.
func leaseOf(l *dhcp.Lease) (Lease, error) {
	addr := l.Address.Addr()
	if !unicast(addr) {
		return Lease{}, fmt.Errorf("%w: the DHCP server assigned the address %s", trivet.ErrInvalid, addr)
	}
	bits := l.Address.Bits()
	if bits == 0 || bits == 32 && !bytes.Equal(l.Options[dhcp.OptSubnetMask], []byte{255, 255, 255, 255}) {
		bits = 24 // no valid mask
	}
	checked := Lease{Address: netip.PrefixFrom(addr, bits), Domain: domain(l.Domain), DNS: addresses(l.DNS, maxServers)}
	if unicast(l.Server) {
		checked.Server = l.Server
	}
	if routers := addresses(l.Routers, 1); len(routers) > 0 {
		checked.Gateway = routers[0]
	}
	for _, r := range l.Routes[:min(len(l.Routes), maxRoutes)] {
		if !unicast(r.Gateway) {
			r.Gateway = netip.Addr{}
		}
		checked.Routes = append(checked.Routes, Route(r))
	}
	if l.MTU >= smallestMTU && l.MTU <= largestMTU {
		checked.MTU = l.MTU
	}
	if l.Time > 0 && l.Time < 0xffffffff*time.Second {
		checked.Lasts = max(l.Time, shortestLease)
	}
	return checked, nil
}

// renewAfter returns when to renew a lease (RFC 2131, 4.4.5: T1). ok is false for a lease that does not expire.
func (l Lease) renewAfter() (d time.Duration, ok bool) { return l.Lasts / 2, l.Lasts > 0 }

func unicast(a netip.Addr) bool { return a.Is4() && (a.IsGlobalUnicast() || a.IsLinkLocalUnicast()) }

// addresses returns the first unicast addresses of a list, at most so many.
func addresses(all []netip.Addr, most int) []netip.Addr {
	var list []netip.Addr
	for _, a := range all {
		if unicast(a) && len(list) < most && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// domain returns a name that is valid in resolv.conf, or "".
func domain(name string) string {
	if len(name) > 253 || slices.ContainsFunc([]byte(name), func(b byte) bool {
		return b != '.' && b != '-' && (b < '0' || b > '9') && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z')
	}) {
		return ""
	}
	return name
}
