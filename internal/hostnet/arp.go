package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// arp is a socket that sends ARP packets, and receives them after listen was called (probe.go).
type arp struct{ fd int }

func openARP() (*arp, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open ARP socket: %w", err)
	}
	return &arp{fd}, nil
}

func (a *arp) close() { _ = unix.Close(a.fd) }

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	arpHeader = []byte{0, 1, 8, 0, 6, 4} // Ethernet and IPv4, with the lengths of their addresses
)

// The two kinds of ARP packet (RFC 826), and the length of both.
const (
	arpRequest = 1
	arpReply   = 2
	arpLen     = 28
)

// protocolARP returns ETH_P_ARP in network byte order.
func protocolARP() uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP))
}

// send broadcasts a packet on an interface.
func (a *arp) send(index int, packet []byte) error {
	to := &unix.SockaddrLinklayer{Protocol: protocolARP(), Ifindex: index, Halen: uint8(len(broadcast))}
	copy(to.Addr[:], broadcast)
	return unix.Sendto(a.fd, packet, 0, to)
}

// announce broadcasts that this host has the address: by a request, as RFC 5227 specifies, and by a reply, because
// some hosts accept only replies.
func (v *VIP) announce(mac net.HardwareAddr) error {
	i, err := v.link()
	if err != nil {
		return err
	}
	var errs []error
	for _, op := range []uint16{arpRequest, arpReply} {
		errs = append(errs, v.arp.send(i.Attrs().Index, packet(op, mac, v.Address.Addr(), v.Address.Addr())))
	}
	return errors.Join(errs...)
}

// packet returns an ARP packet to all, of a sender's MAC and address, about an address. With the same address for
// both it is an announcement; with the sender 0.0.0.0 it is a probe.
func packet(op uint16, mac net.HardwareAddr, sender, about netip.Addr) []byte {
	b := binary.BigEndian.AppendUint16(append(make([]byte, 0, arpLen), arpHeader...), op)
	b = append(append(b, mac...), sender.AsSlice()...)
	return append(append(b, broadcast...), about.AsSlice()...)
}
