package tftp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/trivet-project/trivet"
)

// Bounds of a probe. A server that is busy may lose a packet.
const (
	probeTimeout  = 500 * time.Millisecond
	probeAttempts = 3
)

// Probe requests a file of a server from an address of this host, reads its first block, and ends the transfer. It
// fails with trivet.ErrUnavailable where the server does not answer, and with a *PeerError where it refuses.
func Probe(ctx context.Context, from netip.Addr, server netip.AddrPort, name string) error {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)))
	if err != nil {
		return fmt.Errorf("tftp: probe %s: %w", server, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	if err := probe(ctx, conn, server, name); err != nil {
		return fmt.Errorf("tftp: probe %s: %s: %w", server, name, err)
	}
	return nil
}

func probe(ctx context.Context, conn *net.UDPConn, server netip.AddrPort, name string) error {
	request := append(append([]byte{0, opRead}, name...), "\x00octet\x00"...)
	in := make([]byte, headerSize+defaultBlock)
	for range probeAttempts {
		if _, err := conn.WriteToUDPAddrPort(request, server); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(probeTimeout))
		for {
			if ctx.Err() != nil { // after the deadline was set, which may have replaced that of ctx's end
				return ctx.Err()
			}
			n, peer, err := conn.ReadFromUDPAddrPort(in)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			if peer.Addr().Unmap() != server.Addr() {
				continue
			}
			switch block, ok := blockNumber(in[:n]); {
			case operation(in[:n]) == opError:
				return parseError(in[:n])
			case operation(in[:n]) == opData && ok && block == 1:
				// the server ends the transfer, as by firmware that wants the size only; if it is lost, it gives up
				_, _ = conn.WriteToUDPAddrPort(appendError(nil, CodeOption, "probe"), peer)
				return nil
			}
		}
	}
	return fmt.Errorf("no answer to %d requests: %w", probeAttempts, trivet.ErrUnavailable)
}
