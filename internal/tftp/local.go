package tftp

import (
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A host with several addresses must answer from the destination of the request: firmware checks it. So the
// listening socket receives each request's destination, and the transfer's socket is bound to it.

// receiveDestination makes the kernel report the destination of each packet. A socket of both families needs both
// options: only IPv4's reports a broadcast.
func receiveDestination(conn *net.UDPConn) error {
	return control(conn, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1); err != nil || isIPv4(conn) {
			return err
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
}

// destination returns the destination of a packet. It is false for a broadcast or multicast.
func destination(oob []byte) (addr netip.Addr, ok bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return addr, false
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO &&
			len(m.Data) >= unix.SizeofInet4Pktinfo:
			info := (*unix.Inet4Pktinfo)(unsafe.Pointer(&m.Data[0]))
			// The header's destination and the local address differ for a broadcast. A packet that was queued
			// before receiveDestination has only the first.
			known := info.Ifindex != 0
			return netip.AddrFrom4(info.Addr), !known || info.Addr == info.Spec_dst
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO &&
			len(m.Data) >= unix.SizeofInet6Pktinfo:
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&m.Data[0]))
			addr = netip.AddrFrom16(info.Addr).Unmap()
			if addr.IsLinkLocalUnicast() {
				addr = addr.WithZone(fmt.Sprint(info.Ifindex))
			}
		}
	}
	return addr, addr.IsValid() && !addr.IsMulticast()
}

// blockForMTU returns the bytes of data that a packet to conn's peer holds without fragmentation, and permits
// routers to fragment it where the path has a smaller MTU.
func blockForMTU(conn *net.UDPConn) int {
	mtu, headers := 1500, 20+8+headerSize
	err := control(conn, func(fd int) (err error) {
		if isIPv4(conn) {
			mtu, err = unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU)
			if err != nil {
				return err
			}
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
		}
		headers = 40 + 8 + headerSize
		mtu, err = unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU)
		return err
	})
	if err != nil || mtu <= headers {
		return defaultBlock
	}
	return min(mtu-headers, maxBlock)
}

func isIPv4(conn *net.UDPConn) bool {
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().Is4()
}

func control(conn *net.UDPConn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
