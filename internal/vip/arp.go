package vip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// arp is a socket that sends ARP packets and receives nothing.
type arp struct{ fd int }

func openARP() (*arp, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open ARP socket: %w", err)
	}
	return &arp{fd}, nil
}

func (a *arp) close() { _ = unix.Close(a.fd) }

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// The two kinds of ARP packet (RFC 826).
const (
	arpRequest = 1
	arpReply   = 2
)

// announce tells everybody on the network whose the address is now: as a request, which RFC 5227 wants, and as a reply,
// which some hosts heed only.
func (v *VIP) announce(mac net.HardwareAddr) error {
	i, err := v.link()
	if err != nil {
		return err
	}
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ARP)) // in the network's order
	to := &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: i.Attrs().Index, Halen: uint8(len(broadcast))}
	copy(to.Addr[:], broadcast)
	var errs []error
	for _, op := range []uint16{arpRequest, arpReply} {
		errs = append(errs, unix.Sendto(v.arp.fd, gratuitous(op, mac, v.Address.Addr()), 0, to))
	}
	return errors.Join(errs...)
}

// gratuitous is an ARP packet by which a host tells its own address.
func gratuitous(op uint16, mac net.HardwareAddr, a netip.Addr) []byte {
	b := make([]byte, 0, 28)
	b = binary.BigEndian.AppendUint16(b, 1) // Ethernet
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, 6, 4)
	b = binary.BigEndian.AppendUint16(b, op)
	b = append(append(b, mac...), a.AsSlice()...)
	return append(append(b, broadcast...), a.AsSlice()...)
}
