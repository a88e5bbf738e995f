package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/trivet-project/trivet/internal/dhcp"
)

// relay sends each packet to every head, as a relay with several servers does.
type relay struct {
	net.PacketConn
	heads []netip.Addr
}

func (r *relay) WriteTo(b []byte, _ net.Addr) (n int, err error) {
	var errs []error
	for _, h := range r.heads {
		_, err := r.PacketConn.WriteTo(b, net.UDPAddrFromAddrPort(netip.AddrPortFrom(h, 67)))
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == len(r.heads) {
		return 0, errors.Join(errs...)
	}
	return len(b), nil // a relay does not report a server that cannot be reached
}

// requestLease requests an address as iPXE does, through a relay of the client's own at an address.
func requestLease(ctx context.Context, mac string, at netip.Addr, heads []netip.Addr) (*dhcp.Lease, error) {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	conn, err := lc.ListenPacket(ctx, "udp4", netip.AddrPortFrom(at, 0).String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return dhcp.Exchange(ctx, &relay{conn, heads}, nil, dhcp.ClientConfig{
		MAC: hw, Relay: at, Attempts: 3,
		Options: []dhcp.Option{
			dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000:UNDI:002001"), dhcp.Text(dhcp.OptUserClass, "iPXE"),
			{Code: dhcp.OptArch, Value: []byte{0, 0}},
		},
	})
}
