package vm

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// routerAdvert is a minimal router advertisement (RFC 4861, 4.2): no prefix, no router (lifetime 0), no DHCPv6. The
// kernel adds the checksum.
var routerAdvert = []byte{134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// The addresses of all hosts and all routers of a link.
var (
	allHosts   = [16]byte{0: 0xff, 1: 0x02, 15: 1}
	allRouters = [16]byte{0: 0xff, 1: 0x02, 15: 2}
)

// neighbourHops is the required hop limit of these messages.
const neighbourHops = 255

// routerSolicitation is the type of a message that requests an advertisement.
const routerSolicitation = 133

// advertiser responds to router solicitations, as a real network with IPv6 does. Without a response, iPXE waits 13 s
// before its first request.
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

// run responds until the socket is closed.
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

// send sends an advertisement to all hosts. An error (the bridge has no address yet) is like a lost packet: the host
// retries.
func (a *advertiser) send() {
	raw, err := a.conn.SyscallConn()
	if err != nil {
		return
	}
	to := &unix.SockaddrInet6{Addr: allHosts}
	_ = raw.Control(func(fd uintptr) { _ = unix.Sendto(int(fd), routerAdvert, 0, to) })
}

func (a *advertiser) close() {
	a.conn.Close()
	<-a.done
}
