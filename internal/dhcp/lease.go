package dhcp

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Lease is what a server assigned to a client.
type Lease struct {
	Address    netip.Prefix // with its network's length
	Server     netip.Addr   // the server that assigned it
	Routers    []netip.Addr
	DNS        []netip.Addr
	NTP        []netip.Addr
	HostName   string
	Domain     string
	Routes     []Route       // classless static routes (RFC 3442); they replace Routers
	MTU        int           // bytes; 0 if not sent
	Time       time.Duration // from the exchange on
	NextServer netip.Addr    // TFTP server
	BootFile   string        // path or URL
	Options    dhcpv4.Options
}

func newLease(ack *dhcpv4.DHCPv4) *Lease {
	o := ack.Options
	l := &Lease{
		Server:     addr4(o[OptServerID]),
		Routers:    addrs(o[OptRouter]),
		DNS:        addrs(o[OptDNS]),
		NTP:        addrs(o[OptNTP]),
		HostName:   text(o[OptHostName]),
		Domain:     text(o[OptDomainName]),
		NextServer: addr4(ack.ServerIPAddr),
		BootFile:   text(o[OptBootFile]),
		Routes:     routes(o[OptClasslessRoute]),
		Options:    o,
	}
	if a := addr4(ack.YourIPAddr); a.IsValid() {
		l.Address = netip.PrefixFrom(a, maskLength(o[OptSubnetMask]))
	}
	if l.BootFile == "" {
		l.BootFile = text([]byte(ack.BootFileName))
	}
	if v := o[OptLease]; len(v) == 4 {
		l.Time = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
	}
	if v := o[OptMTU]; len(v) == 2 {
		l.MTU = int(binary.BigEndian.Uint16(v))
	}
	return l
}

// maskLength returns the prefix length of option 1; 32 if it is absent or not contiguous.
func maskLength(v []byte) int {
	if len(v) != 4 {
		return 32
	}
	mask := binary.BigEndian.Uint32(v)
	if n := bits.LeadingZeros32(^mask); n > 0 && mask<<n == 0 {
		return n
	}
	return 32
}

func addrs(v []byte) []netip.Addr {
	var as []netip.Addr
	for ; len(v) >= 4; v = v[4:] {
		if a := addr4(v[:4]); a.IsValid() {
			as = append(as, a)
		}
	}
	return as
}

// Route is a route to a network. Without a Gateway the network is on the link.
type Route struct {
	To      netip.Prefix
	Gateway netip.Addr
}

// routes parses option 121: a prefix length, as many bytes of the network as it covers, and the gateway (RFC 3442).
// What follows a malformed route is ignored.
func routes(v []byte) []Route {
	var all []Route
	for len(v) > 0 {
		bits := int(v[0])
		n := (bits + 7) / 8
		if bits > 32 || len(v) < 1+n+4 {
			break
		}
		var to [4]byte
		copy(to[:], v[1:1+n])
		all = append(all, Route{netip.PrefixFrom(netip.AddrFrom4(to), bits).Masked(), addr4(v[1+n : 1+n+4])})
		v = v[1+n+4:]
	}
	return all
}
