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
	"github.com/trivet-project/trivet/internal/wait"
)

// Before a host takes the address it probes for it (RFC 5227, section 2.1.1, with shorter times: hosts of one LAN
// answer within milliseconds). No host answers in a failover: one that is dead, stopped or cut off has lost the
// address before another can hold the lease (lease.go). So the probe delays a failover by 0.2 s.
//
// A host of the group that still answers, such as a process that continued after a long stop, detects that it lost
// its lease or is stopped again: in both cases its kernel removes the address within 1.2 times lifetime. A host
// that answers for conflictAfter is no host of the group.
const (
	probes        = 3
	probeEvery    = 70 * time.Millisecond
	conflictAfter = 3 * lifetime / 2
)

// probe fails where another host has the address. It also returns nil where ctx has ended.
func (v *VIP) probe(ctx context.Context) error {
	for began := time.Now(); ; _ = wait.Sleep(ctx, refresh) {
		mac, err := v.round(ctx)
		if err != nil || mac == nil || ctx.Err() != nil {
			return err
		}
		if time.Since(began) >= conflictAfter {
			return v.refuse(trivet.ErrConflict, "no head takes the address while that host has it, and all retry; "+
				"find the host by its MAC, or give all heads another --vip",
				"the host %s on %s has it, which is no head of this cluster", mac, v.Interface)
		}
	}
}

// round sends probes, and returns the MAC of the first host that answers for the address; nil if none does.
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

// listen makes the socket receive an interface's ARP packets.
func (a *arp) listen(index int) error {
	if err := unix.Bind(a.fd, &unix.SockaddrLinklayer{Protocol: protocolARP(), Ifindex: index}); err != nil {
		return fmt.Errorf("listen for ARP: %w", err)
	}
	var b [64]byte
	for range maxQueued { // discards what is queued; the kernel queues a few hundred packets
		if _, _, err := unix.Recvfrom(a.fd, b[:], 0); errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return nil
}

const maxQueued = 4096

// receive returns a packet to this host or to all, or nil.
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
	at, ok := from.(*unix.SockaddrLinklayer)
	if !ok || at.Pkttype == unix.PACKET_OTHERHOST || at.Pkttype == unix.PACKET_OUTGOING {
		return nil, nil // of another VLAN, or sent by this host
	}
	return b[:n], nil
}

// claim returns the MAC of a host whose ARP packet claims the address; nil if it does not claim it.
func claim(b []byte, a netip.Addr) net.HardwareAddr {
	if len(b) < arpLen || !bytes.Equal(b[:6], arpHeader) || !bytes.Equal(b[14:18], a.AsSlice()) {
		return nil
	}
	if op := binary.BigEndian.Uint16(b[6:]); op != arpRequest && op != arpReply {
		return nil
	}
	return net.HardwareAddr(b[8:14])
}
