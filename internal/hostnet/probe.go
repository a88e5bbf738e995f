package hostnet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Before a head takes the address it asks the network who has it (RFC 5227, section 2.1.1, by shorter times: hosts of one
// LAN answer within milliseconds). Nobody answers in a move: a head that is dead, stopped or cut off from the store has
// lost the address before another one can hold the lease (hold.go). So a move takes one silent round longer, 0.2 s.
//
// One of ours that still answers, such as a process that went on after a long stop, sees that its lease is gone or is
// stopped again: either way its kernel drops the address within lifetime and a fifth. Who answers for patience is no head of
// this cluster.
const (
	probes     = 3
	probeEvery = 70 * time.Millisecond
	patience   = 3 * lifetime / 2
)

// probe refuses an address that another host has. It gives nil as well where ctx has ended.
func (v *VIP) probe(ctx context.Context) error {
	for began := time.Now(); ; wait(ctx, refresh) {
		mac, err := v.round(ctx)
		if err != nil || mac == nil || ctx.Err() != nil {
			return err
		}
		if time.Since(began) >= patience {
			return v.refuse(trivet.ErrConflict, "nobody has the address by Trivet until that host gives it up, which is tried again and again; "+
				"find the host by its MAC, or give all heads another --vip", "the host %s on %s has it, which is no head of this cluster", mac, v.Interface)
		}
	}
}

// round sends probes, and gives the MAC of the first who answers for the address; nil after silence.
func (v *VIP) round(ctx context.Context) (net.HardwareAddr, error) {
	link, err := v.link()
	if err != nil {
		return nil, err
	}
	own, index := link.Attrs().HardwareAddr, link.Attrs().Index
	if err := v.arp.listen(index); err != nil {
		return nil, err
	}
	for i := 0; i < probes && ctx.Err() == nil; i++ {
		if err := v.arp.send(index, packet(arpRequest, own, netip.IPv4Unspecified(), v.Address.Addr())); err != nil {
			return nil, fmt.Errorf("send ARP probe on %s: %w", v.Interface, err)
		}
		for until := time.Now().Add(probeEvery); time.Now().Before(until); {
			b, err := v.arp.receive(until)
			if err != nil {
				return nil, fmt.Errorf("wait for ARP on %s: %w", v.Interface, err)
			}
			if mac := claim(b, v.Address.Addr()); mac != nil && !bytes.Equal(mac, own) {
				return mac, nil
			}
		}
	}
	return nil, nil
}

// listen has the socket receive an interface's ARP packets from now on.
func (a *arp) listen(index int) error {
	if err := unix.Bind(a.fd, &unix.SockaddrLinklayer{Protocol: protocolARP(), Ifindex: index}); err != nil {
		return fmt.Errorf("listen for ARP: %w", err)
	}
	var b [64]byte
	for range maxQueued { // what came since the last time; the kernel keeps a few hundred packets
		if _, _, err := unix.Recvfrom(a.fd, b[:], 0); errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return nil
}

const maxQueued = 4096

// receive gives a packet that was for this host or for all, or nothing.
func (a *arp) receive(until time.Time) ([]byte, error) {
	ready := []unix.PollFd{{Fd: int32(a.fd), Events: unix.POLLIN}}
	left := max(time.Until(until), 0)
	if _, err := unix.Poll(ready, int(left/time.Millisecond)+1); err != nil && !errors.Is(err, unix.EINTR) {
		return nil, err
	}
	b := make([]byte, 64)
	n, from, err := unix.Recvfrom(a.fd, b, 0)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if at, ok := from.(*unix.SockaddrLinklayer); !ok || at.Pkttype == unix.PACKET_OTHERHOST || at.Pkttype == unix.PACKET_OUTGOING {
		return nil, nil // another VLAN's, or our own
	}
	return b[:n], nil
}

// claim is the MAC of a host that says in an ARP packet that it has the address; nil if it does not say so.
func claim(b []byte, a netip.Addr) net.HardwareAddr {
	if len(b) < arpLen || !bytes.Equal(b[:6], arpHeader) || !bytes.Equal(b[14:18], a.AsSlice()) {
		return nil
	}
	if op := binary.BigEndian.Uint16(b[6:]); op != arpRequest && op != arpReply {
		return nil
	}
	return net.HardwareAddr(b[8:14])
}
