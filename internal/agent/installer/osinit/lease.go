package osinit

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
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

// leaseOf reads an acknowledgement. Invalid options other than the address are ignored: it comes from the network.
func leaseOf(ack *dhcpv4.DHCPv4) (Lease, error) {
	addr, ok := unicast(ack.YourIPAddr)
	if !ok {
		return Lease{}, fmt.Errorf("%w: the DHCP server gave the address %s", trivet.ErrInvalid, ack.YourIPAddr)
	}
	ones, bits := ack.SubnetMask().Size()
	if bits != 32 || ones == 0 { // no mask, or one with holes
		ones = 24
	}
	l := Lease{Address: netip.PrefixFrom(addr, ones), Domain: domain(ack.DomainName())}
	l.Server, _ = unicast(ack.ServerIdentifier())
	if routers := addresses(ack.Router(), 1); len(routers) > 0 {
		l.Gateway = routers[0]
	}
	l.DNS = addresses(ack.DNS(), maxServers)
	l.Routes = routes(ack.ClasslessStaticRoute())
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options); err == nil && mtu >= smallestMTU && mtu <= largestMTU {
		l.MTU = int(mtu)
	}
	if t := ack.IPAddressLeaseTime(0); t > 0 && t < 0xffffffff*time.Second {
		l.Lasts = max(t, shortestLease)
	}
	return l, nil
}

// renewAfter returns when to renew a lease (RFC 2131, 4.4.5: T1). ok is false for a lease that does not expire.
func (l Lease) renewAfter() (d time.Duration, ok bool) { return l.Lasts / 2, l.Lasts > 0 }

func unicast(ip net.IP) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(ip.To4())
	return addr, ok && (addr.IsGlobalUnicast() || addr.IsLinkLocalUnicast())
}

func addresses(ips []net.IP, most int) []netip.Addr {
	var list []netip.Addr
	for _, ip := range ips {
		if addr, ok := unicast(ip); ok && len(list) < most && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	return list
}

func routes(given dhcpv4.Routes) []Route {
	var list []Route
	for _, r := range given {
		if r == nil || r.Dest == nil || len(list) == maxRoutes {
			continue
		}
		to, ok := netip.AddrFromSlice(r.Dest.IP.To4())
		ones, bits := r.Dest.Mask.Size()
		if !ok || bits != 32 {
			continue
		}
		gateway, _ := unicast(r.Router)
		list = append(list, Route{To: netip.PrefixFrom(to, ones).Masked(), Gateway: gateway})
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
