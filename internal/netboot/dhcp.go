package netboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// client is one packet with all that is known of its sender.
type client struct {
	*dhcp.Packet
	host
	lease    addressing.Request
	decision boot.Decision
	server   netip.Addr // the server identifier of the reply: this head's, or that of the head that it answers for
}

// ServeDHCP makes Server a [dhcp.Handler].
func (s *Server) ServeDHCP(ctx context.Context, r *dhcp.Packet) *dhcp.Reply {
	if len(r.MAC()) != 6 || r.MAC()[0]&1 != 0 || !r.Local.IsValid() {
		return nil // machines are known by their Ethernet addresses, and must be able to address this head
	}
	if r.IsProbe() {
		return s.serveProbe(r)
	}
	c := &client{Packet: r, host: s.host(r.MAC().String()), server: r.Local}
	c.lease = addressing.Request{MAC: c.mac, Machine: c.machine, Network: s.Leases.Network(r.Link()),
		Hint: r.RequestedIP(), Server: r.Local, Port: switchPort(r), Wait: r}
	if c.lease.Network == nil {
		s.noteSegment(c)
	}
	s.overhear(c)
	c.decision = boot.Decide(s.facts(c))
	if c.decision.Mode == boot.Silent {
		s.log.Debug("dhcp: no answer", "mac", c.mac, "type", r.Type(), "reason", c.decision.Reason)
		return nil
	}
	switch r.Type() {
	case dhcp.Discover:
		if !s.answers(c) {
			return nil
		}
		return s.discover(c)
	case dhcp.Request:
		return s.request(ctx, c)
	case dhcp.Inform:
		if !s.answers(c) {
			return nil
		}
		return s.reply(c, dhcp.Ack, netip.Addr{}, 0)
	case dhcp.Decline:
		s.Leases.Decline(ctx, &c.lease, c.RequestedIP())
	case dhcp.Release:
		s.Leases.Release(ctx, &c.lease, c.ClientIP())
	}
	return nil
}

// switchPort returns the port of the switch that a packet came from, as its relay names it.
func switchPort(r *dhcp.Packet) string {
	circuit, _ := r.RelayOption(dhcp.RelayCircuitID)
	remote, _ := r.RelayOption(dhcp.RelayRemoteID)
	if !r.Relay().IsValid() || len(circuit)+len(remote) == 0 {
		return ""
	}
	return fmt.Sprintf("%x/%x", circuit, remote)
}

// overhear notes the address that a port requests from another server: its boot script is for that address.
func (s *Server) overhear(c *client) {
	if n := c.lease.Network; n == nil || n.Record.Spec.DHCPOrDefault() != "proxy" || c.Type() != dhcp.Request ||
		c.Port == dhcp.ProxyPort {
		return
	}
	a := c.ClientIP()
	if !a.IsValid() {
		a = c.RequestedIP()
	}
	s.Leases.Heard(c.mac, a)
}

func (s *Server) facts(c *client) boot.Facts {
	f := boot.Facts{MAC: c.mac, Known: c.machine != nil, Proxy: c.Port == dhcp.ProxyPort, Head: s.bootAddr(c)}
	if c.lease.Network != nil {
		f.Network = c.lease.Network.Record
	}
	if c.Class() == dhcp.OtherClient && !c.IPXE() {
		return f
	}
	f.URL = "http://" + net.JoinHostPort(f.Head.String(), strconv.Itoa(int(s.Port)))
	f.Client = boot.Client{IPXE: c.IPXE(), Loader: loaders[c.Class()], Arch: arch(c.Packet)}
	f.HTTPS = s.TLS != nil
	f.Client.HTTPS = c.IPXEFeature(dhcp.IPXEHTTPS) || !c.IPXE() && c.Class() == dhcp.HTTPClient
	f.Client.NoHTTP = f.Client.IPXE && len(c.Option(dhcp.OptIPXE)) > 0 && !c.IPXEFeature(dhcp.IPXEHTTP)
	return f
}

// loaders and classes map the client kinds of package dhcp to those of package boot, and back.
var (
	loaders = map[dhcp.Class]boot.Loader{dhcp.PXEClient: boot.PXELoader, dhcp.HTTPClient: boot.HTTPLoader}
	classes = map[boot.Loader]dhcp.Class{boot.PXELoader: dhcp.PXEClient, boot.HTTPLoader: dhcp.HTTPClient}
)

func arch(r *dhcp.Packet) boot.Arch {
	var numbers []uint16
	for _, a := range r.Archs() {
		numbers = append(numbers, uint16(a))
	}
	return boot.ArchOf(numbers...)
}

// bootAddr is where the client loads its boot file from.
func (s *Server) bootAddr(c *client) netip.Addr {
	n := c.lease.Network
	near := s.VIP.Contains(c.Local) || n != nil && n.Record.Spec.CIDR.Contains(s.VIP.Addr())
	if near && s.writable() {
		return s.VIP.Addr()
	}
	return c.Local
}

// discover answers DHCPDISCOVER.
func (s *Server) discover(c *client) *dhcp.Reply {
	if c.decision.BootFile != "" {
		s.reached(c.host, trivet.StepDHCP)
	}
	if c.decision.Mode == boot.ProxyOnly {
		return s.reply(c, dhcp.Offer, netip.Addr{}, 0)
	}
	a, err := s.Leases.Offer(&c.lease)
	if err != nil {
		s.metrics.unoffered.Inc()
		s.warn("dhcp: no address to offer", "mac", c.mac, "machine", c.name(), "error", err)
		return nil
	}
	return s.reply(c, dhcp.Offer, a, s.Leases.LeaseTime(&c.lease, a))
}

// request answers DHCPREQUEST.
func (s *Server) request(ctx context.Context, c *client) *dhcp.Reply {
	want := c.RequestedIP()
	switch phase := c.Phase(); {
	case !s.requested(c):
		return nil
	case c.decision.Mode == boot.ProxyOnly && c.Port != dhcp.ProxyPort:
		return nil // it is for the server that assigned the address
	case c.decision.Mode == boot.ProxyOnly:
		return s.reply(c, dhcp.Ack, netip.Addr{}, 0)
	case phase == dhcp.Renewing, phase == dhcp.Rebinding:
		want = c.ClientIP()
	}
	lease, err := s.Leases.Bind(ctx, &c.lease, want)
	switch {
	case err == nil:
		return s.reply(c, dhcp.Ack, want, lease)
	case errors.Is(err, addressing.ErrRefused):
		s.log.Debug("dhcp: refused", "mac", c.mac, "address", want, "error", err)
		return s.nak(c, err)
	}
	// The client asks again, this head or another.
	s.warn("dhcp: the record of an address could not be written", "mac", c.mac, "address", want, "error", err)
	return nil
}

// requested reports whether this head answers a DHCPREQUEST. One that accepts another head's offer is answered with
// that head's server identifier, which the client waits for.
func (s *Server) requested(c *client) bool {
	id := c.ServerID()
	switch other := s.responders.Get().at(id); {
	case c.Phase() != dhcp.Selecting, id == c.ServerIDOverride():
		return s.answers(c)
	case id == c.Local:
		return s.answersFor(c, s.Head)
	case other == "" || c.decision.Mode == boot.ProxyOnly:
		if c.decision.Mode == boot.Serve {
			s.reportForeign(c, id)
		}
		s.Leases.Withdraw(c.RequestedIP(), c.mac) // the client chose another server
		return false
	case !s.up(other, c):
		s.takeOver(c, other)
	case !s.answersFor(c, other):
		s.Leases.Offered(&c.lease, c.RequestedIP())
		return false
	}
	c.server = id
	return true
}
