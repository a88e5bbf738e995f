package osinit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/dhcp"
)

// Timeouts of the network. A switch may block a port for 30 s (spanning tree).
const (
	networkTimeout = 3 * time.Minute
	bootPortWait   = 30 * time.Second // for the boot port to appear; after it any port is used
	dhcpTimeout    = 3 * time.Second  // for a first answer; doubled with each of dhcpRetries
	dhcpRetries    = 2
)

// port is the interface that got an address.
type port struct {
	link  netlink.Link
	lease *dhcp.Lease
	Lease
}

// connect brings up loopback and all ports, and gets an address on the best port with a DHCP server.
func connect(ctx context.Context, boot net.HardwareAddr, printf func(string, ...any)) (*port, error) {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	updates := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribe(updates, ctx.Done()); err != nil {
		cancel()
		return nil, fmt.Errorf("watch network ports: %w", err)
	}
	defer func() {
		cancel()
		for range updates { // until the subscription is closed
		}
	}()
	bootPortTimer := time.NewTimer(bootPortWait)
	defer bootPortTimer.Stop()
	again := time.NewTicker(5 * time.Second) // a server may start later
	defer again.Stop()
	cause := errors.New("no network port has a link")
	if len(boot) > 0 {
		printf("waiting for the port with %s", boot)
	}
	for {
		for _, l := range choose(raise(), boot) {
			p, err := acquire(ctx, l, printf)
			if err == nil {
				return p, nil
			}
			cause = err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("get a network address: %w", cause)
		case <-bootPortTimer.C:
			boot = nil
		case <-again.C:
		case <-updates:
		}
	}
}

// raise brings up every port and returns them.
func raise() []link {
	all, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	var links []link
	for _, l := range all {
		a := l.Attrs()
		if a.Flags&net.FlagUp == 0 {
			_ = netlink.LinkSetUp(l) // one that cannot be brought up gets no carrier
		}
		if l.Type() == "device" && a.Flags&net.FlagLoopback == 0 {
			links = append(links, link{a.Name, a.HardwareAddr, a.RawFlags&unix.IFF_LOWER_UP != 0})
		}
	}
	return links
}

// acquire gets a lease for a port and configures its address.
func acquire(ctx context.Context, l link, printf func(string, ...any)) (*port, error) {
	printf("requesting an address on %s (%s)", l.name, l.mac)
	nl, err := netlink.LinkByName(l.name)
	if err != nil {
		return nil, fmt.Errorf("port %s: %w", l.name, err)
	}
	lease, err := dhcp.Acquire(ctx, l.name, clientConfig())
	if err != nil {
		return nil, fmt.Errorf("DHCP on %s: %w", l.name, err)
	}
	return configure(nl, lease)
}

// configure configures a port that has no address. A port that fails keeps none: another port may get the same one.
func configure(nl netlink.Link, lease *dhcp.Lease) (*port, error) {
	p := &port{link: nl}
	err := p.apply(lease)
	if err == nil {
		return p, nil
	}
	if addr, parseErr := netlink.ParseAddr(p.Address.String()); parseErr == nil {
		_ = netlink.AddrDel(nl, addr) // and its routes; it may not have been set
	}
	return nil, err
}

// clientConfig is how the installer asks for a lease.
func clientConfig(more ...dhcp.Option) dhcp.ClientConfig {
	options := append([]dhcp.Option{dhcp.Text(dhcp.OptClass, "trivet-agent")}, more...)
	return dhcp.ClientConfig{Options: options, Timeout: dhcpTimeout, Attempts: 1 + dhcpRetries}
}

// apply configures the port by a lease and removes the address of an older one, which it keeps if the lease is not
// valid.
func (p *port) apply(lease *dhcp.Lease) error {
	checked, err := leaseOf(lease)
	if err != nil {
		return err
	}
	before := p.Lease
	p.lease, p.Lease = lease, checked
	if before.Address.IsValid() && before.Address != p.Address {
		if old, err := netlink.ParseAddr(before.Address.String()); err == nil {
			_ = netlink.AddrDel(p.link, old) // and its routes
		}
	}
	addr, err := netlink.ParseAddr(p.Address.String())
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(p.link, addr); err != nil {
		return fmt.Errorf("set address %s: %w", p.Address, err)
	}
	if p.MTU > 0 {
		_ = netlink.LinkSetMTU(p.link, p.MTU) // a port that does not support it keeps its own
	}
	return errors.Join(p.applyRoutes(), p.applyDNS())
}

func (p *port) applyRoutes() error {
	list := p.Routes
	if len(list) == 0 && p.Gateway.IsValid() {
		list = []Route{{Gateway: p.Gateway}}
	}
	for _, r := range list {
		route := &netlink.Route{LinkIndex: p.link.Attrs().Index,
			Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}}
		if r.To.IsValid() {
			route.Dst = &net.IPNet{IP: r.To.Addr().AsSlice(), Mask: net.CIDRMask(r.To.Bits(), 32)}
		}
		if r.Gateway.IsValid() {
			route.Gw = r.Gateway.AsSlice()
			if !p.Address.Contains(r.Gateway) {
				route.Flags = int(netlink.FLAG_ONLINK)
			}
		} else {
			route.Scope = netlink.SCOPE_LINK
		}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("set route to %s by %s: %w", route.Dst, r.Gateway, err)
		}
	}
	return nil
}

func (p *port) applyDNS() error {
	var b strings.Builder
	if p.Domain != "" {
		fmt.Fprintln(&b, "search", p.Domain)
	}
	for _, server := range p.DNS {
		fmt.Fprintln(&b, "nameserver", server)
	}
	return os.WriteFile("/etc/resolv.conf", []byte(b.String()), 0o644)
}

// keep renews the lease until the context ends. If its server does not answer, it is requested by broadcast, so that
// any server can answer, without a limit. The address is kept meanwhile: an install must not fail because a server is
// down.
func (p *port) keep(ctx context.Context, printf func(string, ...any)) {
	wait, ends := p.renewAfter()
	for ends {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := p.renew(ctx); err != nil {
			printf("renew %s: %v", p.Address, err)
			wait = shortestLease
			continue
		}
		wait, ends = p.renewAfter()
	}
}

// renew renews the lease. Where no server does, it asks for a new lease of the same address.
func (p *port) renew(ctx context.Context) error {
	name := p.link.Attrs().Name
	lease, err := dhcp.Extend(ctx, name, clientConfig(), p.lease)
	if err != nil {
		want := dhcp.Addrs(dhcp.OptRequestedIP, p.Address.Addr())
		if lease, err = dhcp.Acquire(ctx, name, clientConfig(want)); err != nil {
			return err
		}
	}
	return p.apply(lease)
}
