package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// ProbeMAC is the hardware address of probes, which no machine has: locally administered.
const ProbeMAC = "02:74:72:76:70:62"

// probeClass is the user class of probes.
const probeClass = "trivet.probe"

// Bounds of a probe. A head that is busy may lose a packet.
const (
	probeTimeout  = 500 * time.Millisecond
	probeAttempts = 3
)

// IsProbe reports whether a packet is one of [Probe]: its sender needs no address, only an answer.
func (r *Packet) IsProbe() bool {
	return r.MAC().String() == ProbeMAC && slices.Contains(r.UserClasses(), probeClass)
}

// Probe sends a DHCPDISCOVER to a server as UEFI firmware does, as its own relay at an address of this host, and
// returns the offer. A head answers it like any other client of that network, but assigns no address. It fails with
// trivet.ErrUnavailable where the server does not answer.
func Probe(ctx context.Context, from netip.Addr, server netip.AddrPort) (*Lease, error) {
	mac, err := net.ParseMAC(ProbeMAC)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
	if err != nil {
		return nil, fmt.Errorf("dhcp: probe %s: %w", server, err)
	}
	defer conn.Close()
	x, err := newExchange(conn, net.UDPAddrFromAddrPort(server), ClientConfig{MAC: mac, Relay: from, Options: []Option{
		Text(OptClass, "PXEClient:Arch:00007:UNDI:003016"), {Code: OptArch, Value: []byte{0, 7}},
		Text(OptUserClass, probeClass)}})
	if err != nil {
		return nil, err
	}
	lease, err := x.probe(ctx, server.Addr())
	if err != nil {
		return nil, fmt.Errorf("dhcp: probe %s: %w", server, err)
	}
	return lease, nil
}

// probe sends DISCOVER until the server has offered.
func (x *exchange) probe(ctx context.Context, server netip.Addr) (*Lease, error) {
	defer context.AfterFunc(ctx, func() { x.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for range probeAttempts {
		if _, err := x.conn.WriteTo(x.packet(Discover, nil), x.server); err != nil {
			return nil, err
		}
		x.conn.SetReadDeadline(time.Now().Add(probeTimeout))
		for {
			if ctx.Err() != nil { // after the deadline was set, which may have replaced that of ctx's end
				return nil, ctx.Err()
			}
			n, _, err := x.conn.ReadFrom(x.in)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return nil, err
			}
			if p, ok := x.parse(x.in[:n]); ok && p.MessageType() == Offer && addr4(p.Options[OptServerID]) == server {
				return newLease(p), nil
			}
		}
	}
	return nil, fmt.Errorf("no answer to %d %s: %w", probeAttempts, Discover, trivet.ErrUnavailable)
}
