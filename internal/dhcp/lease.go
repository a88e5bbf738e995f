package dhcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
)

// Lease is what a client was given.
type Lease struct {
	Address    netip.Prefix // with its network's length
	Server     netip.Addr   // who gave it
	Routers    []netip.Addr
	DNS        []netip.Addr
	NTP        []netip.Addr
	HostName   string
	Domain     string
	MTU        int           // bytes; 0 if not told
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

// maskLength of option 1; a host's if it is absent or has holes.
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

// Acquire gets an address for a network interface that has none, over a raw socket; it needs CAP_NET_RAW. The interface
// must be up. Configuring it is the caller's.
func Acquire(ctx context.Context, name string, c ClientConfig) (*Lease, error) {
	if len(c.MAC) == 0 {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("dhcp: interface %s: %w", name, err)
		}
		c.MAC = i.HardwareAddr
	}
	conn, err := nclient4.NewRawUDPConn(name, ClientPort)
	if err != nil {
		return nil, fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	defer conn.Close()
	return Exchange(ctx, conn, nclient4.DefaultServers, c)
}
