package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// receiveBuffer bounds the queue of packets that no worker has read yet, to about 4000. The kernel drops and counts
// further ones.
const receiveBuffer = 4 << 20

// socket is a server port on one interface, or on all.
type socket struct {
	conn   *net.UDPConn
	name   string // the interface; empty for all
	port   uint16
	missed atomic.Uint32 // packets that the kernel dropped, as last reported
}

// listen opens addr on the named interface, or on every one. The port must be free.
func listen(name string, addr netip.AddrPort) (*socket, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if outer := raw.Control(func(fd uintptr) { err = prepare(int(fd), name) }); outer != nil {
			return outer
		}
		return err
	}}
	conn, err := config.ListenPacket(context.Background(), "udp4", addr.String())
	if err != nil {
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	s := &socket{conn: conn.(*net.UDPConn), name: name}
	s.port = s.addr().Port()
	return s, nil
}

func (s *socket) addr() netip.AddrPort { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// prepare sets a socket's options before it is bound, so that they apply to the first packet.
func prepare(fd int, name string) error {
	if name != "" {
		if err := unix.BindToDevice(fd, name); err != nil {
			return fmt.Errorf("bind to interface: %w", err)
		}
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		// Without privilege the system's limit applies.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer); err != nil {
			return err
		}
	}
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1))
}

// arrival is how a packet was received.
type arrival struct {
	from    netip.AddrPort
	local   netip.Addr
	ifindex int
	unicast bool
	missed  uint32 // packets dropped since the previous one
	at      time.Time
}

// receive reads one packet into b. A longer one is cut to len(b) bytes, which parse refuses.
func (s *socket) receive(b, control []byte) (int, arrival, error) {
	n, oobn, _, from, err := s.conn.ReadMsgUDPAddrPort(b, control)
	a := arrival{from: from, at: time.Now()}
	if err != nil {
		return 0, a, err
	}
	for oob := control[:oobn]; len(oob) > 0; {
		header, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		switch {
		case header.Level == unix.IPPROTO_IP && header.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			a.ifindex = int(int32(binary.NativeEndian.Uint32(data)))
			a.local = netip.AddrFrom4([4]byte(data[4:8]))
			a.unicast = [4]byte(data[8:12]) == a.local.As4()
		case header.Level == unix.SOL_SOCKET && header.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			now := binary.NativeEndian.Uint32(data)
			if before := s.missed.Swap(now); int32(now-before) > 0 { // workers may pass each other
				a.missed = now - before
			}
		}
		oob = rest
	}
	return n, a, nil
}

// pktinfo returns the control message that sets the source address of a packet, and its interface if that is not 0.
func pktinfo(from netip.Addr, ifindex int) []byte {
	info := unix.Inet4Pktinfo{Ifindex: int32(ifindex)}
	if from.Is4() {
		info.Spec_dst = from.As4()
	}
	return unix.PktInfo4(&info)
}
