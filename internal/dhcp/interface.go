package dhcp

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

// Inquire broadcasts DHCPINFORM on an interface that has an address, as its own relay, and gives every answer to take, until
// that is content or the tries are over, which is trivet.ErrUnavailable. It takes no address, and no port that a server or
// client has.
func Inquire(ctx context.Context, name string, c ClientConfig, take func(*Lease) bool) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	addr, err := firstAddr(i)
	if err != nil {
		return err
	}
	socket, err := listen(name, netip.AddrPortFrom(addr, 0))
	if err != nil {
		return fmt.Errorf("dhcp: %w", err)
	}
	defer socket.conn.Close()
	c.MAC, c.Relay = i.HardwareAddr, addr
	x, err := newExchange(socket.conn, net.UDPAddrFromAddrPort(netip.AddrPortFrom(everyone, ServerPort)), c)
	if err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	defer context.AfterFunc(ctx, func() { socket.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for try := range x.Attempts {
		if _, err := x.conn.WriteTo(x.packet(Inform, nil), x.server); err != nil {
			return fmt.Errorf("dhcp: interface %s: %w", name, err)
		}
		x.conn.SetReadDeadline(time.Now().Add(x.Timeout << try))
		for {
			p, err := x.receive(ctx, Ack)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil && !errors.Is(err, ErrRefused) {
				return fmt.Errorf("dhcp: interface %s: %w", name, err)
			}
			if err == nil && take(newLease(p)) {
				return nil
			}
		}
	}
	return fmt.Errorf("dhcp: interface %s: no answer: %w", name, trivet.ErrUnavailable)
}

// firstAddr is an interface's first IPv4 address.
func firstAddr(i *net.Interface) (netip.Addr, error) {
	all, err := i.Addrs()
	for _, a := range all {
		if p, errOne := netip.ParsePrefix(a.String()); errOne == nil && p.Addr().Is4() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.Join(err, fmt.Errorf("dhcp: interface %s has no address: %w", i.Name, trivet.ErrInvalid))
}
