package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"github.com/trivet-project/trivet"
)

// reach returns why no host of several responds.
func (k *Keeper) reach(ctx context.Context, hosts []netip.Addr) error {
	var failed []string
	for _, host := range hosts {
		err := k.cfg.Reach(ctx, host)
		if err == nil {
			return nil
		}
		failed = append(failed, fmt.Sprintf("%s: %v", host, err))
	}
	return fmt.Errorf("%w: this head may be cut off itself: it reaches none of the addresses that it should: %s",
		trivet.ErrUnavailable, strings.Join(failed, "; "))
}

const (
	echoes      = 3
	echoTimeout = time.Second
)

// Echo returns why a host does not respond to ICMP echo requests (RFC 792). It must not be this one.
func Echo(ctx context.Context, host netip.Addr) error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(host.AsSlice()) {
			return fmt.Errorf("%w: it is the address of this head itself", trivet.ErrInvalid)
		}
	}
	conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	defer conn.Close()
	for seq := 1; seq <= echoes; seq++ {
		err = echo(conn, host, seq)
		if !errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%w: no response: %w", trivet.ErrUnavailable, err)
	}
	return nil
}

// echo sends one request, and waits for its reply.
func echo(conn *icmp.PacketConn, host netip.Addr, seq int) error {
	id := os.Getpid() & 0xffff
	request := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: seq, Data: []byte("trivet")}}
	packet, err := request.Marshal(nil)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(echoTimeout)); err != nil {
		return err
	}
	if _, err := conn.WriteTo(packet, &net.IPAddr{IP: host.AsSlice()}); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if isReply(buffer[:n], from, host, id, seq) {
			return nil
		}
	}
}

// isReply reports whether a packet is the reply of a host to a request. Every host may send any packet.
func isReply(packet []byte, from net.Addr, host netip.Addr, id, seq int) bool {
	addr, ok := from.(*net.IPAddr)
	if !ok || !addr.IP.Equal(host.AsSlice()) {
		return false
	}
	const protocolICMP = 1
	m, err := icmp.ParseMessage(protocolICMP, packet)
	if err != nil || m.Type != ipv4.ICMPTypeEchoReply {
		return false
	}
	e, ok := m.Body.(*icmp.Echo)
	return ok && e.ID == id && e.Seq == seq
}
