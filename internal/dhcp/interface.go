package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"

	"github.com/trivet-project/trivet"
)

// Acquire gets a lease for a network interface that has no address, over a raw socket; it needs CAP_NET_RAW. The
// interface must be up. Acquire does not configure it.
func Acquire(ctx context.Context, name string, c ClientConfig) (*Lease, error) {
	if err := c.interfaceMAC(name); err != nil {
		return nil, err
	}
	conn, err := nclient4.NewRawUDPConn(name, ClientPort)
	if err != nil {
		return nil, fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	defer conn.Close()
	return Exchange(ctx, conn, nclient4.DefaultServers, c)
}

// Extend renews the lease of an interface that has its address: with the lease's server, or with any server when
// that one does not answer.
func Extend(ctx context.Context, name string, c ClientConfig, lease *Lease) (*Lease, error) {
	if err := c.interfaceMAC(name); err != nil {
		return nil, err
	}
	// Not bound to the lease's address: it would not receive a NAK, which is a broadcast.
	socket, err := listen(name, netip.AddrPortFrom(netip.IPv4Unspecified(), ClientPort))
	if err != nil {
		return nil, fmt.Errorf("dhcp: %w", err)
	}
	defer socket.conn.Close()
	renewed, err := Renew(ctx, socket.conn, serverAt(lease.Server), c, lease)
	if errors.Is(err, trivet.ErrUnavailable) {
		renewed, err = Renew(ctx, socket.conn, serverAt(broadcast), c, lease)
	}
	return renewed, err
}

func serverAt(a netip.Addr) net.Addr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, ServerPort))
}

// interfaceMAC sets the MAC to the interface's, if it is not set.
func (c *ClientConfig) interfaceMAC(name string) error {
	if len(c.MAC) > 0 {
		return nil
	}
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	c.MAC = i.HardwareAddr
	return nil
}

// Inquire broadcasts DHCPINFORM on an interface that has an address, as its own relay, and calls accept with each
// answer until it returns true. It fails with trivet.ErrUnavailable where no answer was accepted. It gets no lease,
// and uses no port of servers and clients.
func Inquire(ctx context.Context, name string, c ClientConfig, accept func(*Lease) bool) error {
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
	x, err := newExchange(socket.conn, serverAt(broadcast), c)
	if err == nil {
		err = x.inform(ctx, accept)
	}
	if err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	return nil
}

func (x *exchange) inform(ctx context.Context, accept func(*Lease) bool) error {
	defer context.AfterFunc(ctx, func() { x.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for attempt := range x.Attempts {
		if _, err := x.conn.WriteTo(x.packet(Inform, nil), x.server); err != nil {
			return err
		}
		x.conn.SetReadDeadline(time.Now().Add(x.Timeout << attempt))
		for {
			p, err := x.receive(ctx, Ack)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil && !errors.Is(err, ErrRefused) {
				return err
			}
			if err == nil && accept(newLease(p)) {
				return nil
			}
		}
	}
	return fmt.Errorf("no answer: %w", trivet.ErrUnavailable)
}

// firstAddr returns an interface's first IPv4 address.
func firstAddr(i *net.Interface) (netip.Addr, error) {
	all, err := i.Addrs()
	for _, a := range all {
		if p, parseErr := netip.ParsePrefix(a.String()); parseErr == nil && p.Addr().Is4() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.Join(err, fmt.Errorf("dhcp: interface %s has no address: %w", i.Name,
		trivet.ErrInvalid))
}
