package vm

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// routerAdvert is the emptiest router advertisement (RFC 4861, 4.2): no prefix, no router (lifetime 0), no DHCPv6. The
// kernel fills in the checksum.
var routerAdvert = []byte{134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// Addresses of all hosts and all routers of a link, and the hop limit without which these messages are dropped.
var (
	allHosts   = [16]byte{0: 0xff, 1: 0x02, 15: 1}
	allRouters = [16]byte{0: 0xff, 1: 0x02, 15: 2}
)

const neighbourHops = 255

// routerSolicitation is the message type that asks for an advertisement.
const routerSolicitation = 133

// advertiser answers router solicitations. iPXE waits for an answer before it fetches anything, 13 s if there is
// none: a real network that has IPv6 answers too.
type advertiser struct {
	conn *os.File
	done chan struct{}
}

// newAdvertiser must be called in the network's namespace.
func newAdvertiser() (*advertiser, error) {
	link, err := net.InterfaceByName(bridge)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMPV6)
	if err != nil {
		return nil, fmt.Errorf("advertise a router: %w", err)
	}
	for _, option := range []struct{ name, value int }{
		{unix.IPV6_MULTICAST_HOPS, neighbourHops}, {unix.IPV6_MULTICAST_IF, link.Index}, {unix.IPV6_MULTICAST_LOOP, 0},
	} {
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, option.name, option.value)
		}
	}
	if err == nil {
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
			&unix.IPv6Mreq{Multiaddr: allRouters, Interface: uint32(link.Index)})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("advertise a router: %w", err)
	}
	a := &advertiser{conn: os.NewFile(uintptr(fd), "icmpv6"), done: make(chan struct{})}
	return a, nil
}

// run answers until the socket is closed.
func (a *advertiser) run() {
	defer close(a.done)
	buf := make([]byte, 1500)
	for {
		n, err := a.conn.Read(buf)
		if err != nil {
			return
		}
		if n > 0 && buf[0] == routerSolicitation {
			a.send()
		}
	}
}

// send tells all hosts; an error (the bridge has no address yet) is as good as a lost packet: the host asks again.
func (a *advertiser) send() {
	raw, err := a.conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Sendto(int(fd), routerAdvert, 0, &unix.SockaddrInet6{Addr: allHosts}) })
}

func (a *advertiser) close() {
	a.conn.Close()
	<-a.done
}
