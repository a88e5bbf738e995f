package netboot

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// client is one packet with all that is known of who sent it.
type client struct {
	*dhcp.Request
	place
	decision boot.Decision
	server   netip.Addr // as whom it is answered: this head, or the one that it takes for the server
}

// ServeDHCP makes Door a [dhcp.Handler].
func (d *Door) ServeDHCP(ctx context.Context, r *dhcp.Request) *dhcp.Reply {
	if len(r.MAC()) != 6 || r.MAC()[0]&1 != 0 || !r.Local.IsValid() {
		return nil // machines are known by their Ethernet addresses, and get to know ours
	}
	c := &client{Request: r, place: place{host: d.host(r.MAC().String()), network: d.networks.of(r.Link())}, server: r.Local}
	c.decision = boot.Decide(d.facts(c))
	if c.decision.Mode == boot.Silent {
		d.log.Debug("dhcp: no answer", "mac", c.mac, "type", r.Type(), "why", c.decision.Why)
		return nil
	}
	switch r.Type() {
	case dhcp.Discover:
		if !d.shared(c) {
			return nil
		}
		return d.discover(c)
	case dhcp.Ask:
		return d.request(ctx, c)
	case dhcp.Inform:
		if !d.shared(c) {
			return nil
		}
		return d.reply(c, dhcp.Ack, netip.Addr{}, 0)
	case dhcp.Decline:
		d.decline(ctx, c)
	case dhcp.Release:
		d.release(ctx, c)
	}
	return nil
}

func (d *Door) facts(c *client) boot.Facts {
	f := boot.Facts{MAC: c.mac, Known: c.machine != nil, Proxy: c.Port == dhcp.ProxyPort, Head: d.bootAddr(c)}
	if c.network != nil {
		f.Network = c.network.record
	}
	if c.Class() == dhcp.OtherClient && !c.IPXE() {
		return f
	}
	f.URL = "http://" + net.JoinHostPort(f.Head.String(), strconv.Itoa(int(d.Port)))
	f.Client = boot.Client{IPXE: c.IPXE(), Loader: loaders[c.Class()], Arch: arch(c.Request)}
	f.Client.NoHTTP = f.Client.IPXE && len(c.Option(dhcp.OptIPXE)) > 0 && !c.IPXEFeature(dhcp.IPXEHTTP)
	return f
}

// loaders and classes are the same in two packages' words.
var (
	loaders = map[dhcp.Class]boot.Loader{dhcp.PXEClient: boot.PXELoader, dhcp.HTTPClient: boot.HTTPLoader}
	classes = map[boot.Loader]dhcp.Class{boot.PXELoader: dhcp.PXEClient, boot.HTTPLoader: dhcp.HTTPClient}
)

func arch(r *dhcp.Request) boot.Arch {
	var numbers []uint16
	for _, a := range r.Archs() {
		numbers = append(numbers, uint16(a))
	}
	return boot.ArchOf(numbers...)
}

func (d *Door) discover(c *client) *dhcp.Reply {
	if c.decision.BootFile != "" {
		d.seen(c.host, trivet.StepDHCP)
	}
	if c.decision.Mode == boot.ProxyOnly {
		return d.reply(c, dhcp.Offer, netip.Addr{}, 0)
	}
	a, err := d.choose(c)
	if err != nil {
		d.metrics.noAddress.Inc()
		d.warn("dhcp: no address to offer", "mac", c.mac, "machine", c.name(), "error", err)
		return nil
	}
	return d.reply(c, dhcp.Offer, a, c.network.lease)
}

// bootAddr is where the client loads its boot file from.
func (d *Door) bootAddr(c *client) netip.Addr {
	near := d.VIP.Contains(c.Local) || c.network != nil && c.network.record.Spec.CIDR.Contains(d.VIP.Addr())
	if near && d.writable() {
		return d.VIP.Addr()
	}
	return c.Local
}

// request answers DHCPREQUEST. Its first three cases are not for us.
func (d *Door) request(ctx context.Context, c *client) *dhcp.Reply {
	want := c.RequestedIP()
	switch phase := c.Phase(); {
	case !d.requested(c):
		return nil
	case c.decision.Mode == boot.ProxyOnly && c.Port != dhcp.ProxyPort:
		return nil
	case c.decision.Mode == boot.ProxyOnly:
		return d.reply(c, dhcp.Ack, netip.Addr{}, 0)
	case phase == dhcp.Renewing, phase == dhcp.Rebinding:
		want = c.ClientIP()
	}
	lease, err := d.grant(ctx, c, want)
	switch {
	case err == nil:
		return d.reply(c, dhcp.Ack, want, lease)
	case errors.Is(err, errRefused):
		d.log.Debug("dhcp: refused", "mac", c.mac, "address", want, "error", err)
		return d.nak(c, err)
	}
	// It asks again, us or another head.
	d.warn("dhcp: an address could not be written", "mac", c.mac, "address", want, "error", err)
	return nil
}

// requested says whether this head answers a DHCPREQUEST. One that takes another head's offer is answered as by that
// head, whose server identifier the client waits for.
func (d *Door) requested(c *client) bool {
	id := c.ServerID()
	switch other := d.heads.table().at(id); {
	case c.Phase() != dhcp.Selecting, id == c.ServerIDOverride():
		return d.shared(c)
	case id == c.Local:
		return d.turn(c, d.Head)
	case other == "" || c.decision.Mode == boot.ProxyOnly:
		d.offers.done(c.RequestedIP(), c.mac) // it chose another server
		return false
	case !d.up(other, c):
		d.takeOver(c, other)
	case !d.turn(c, other):
		d.offers.claim(c.RequestedIP(), c.mac, d.now())
		return false
	}
	c.server = id
	return true
}

// reply makes an offer or acknowledgement by the decision; no address means what to boot and where only.
func (d *Door) reply(c *client, t dhcp.Type, a netip.Addr, lease time.Duration) *dhcp.Reply {
	r := &dhcp.Reply{Type: t, Server: c.server, Address: a, Lease: lease,
		Class: classes[c.decision.Class], NextServer: c.decision.NextServer, BootFile: c.decision.BootFile}
	if r.Class == dhcp.PXEClient {
		r.Add(dhcp.SkipDiscovery(), dhcp.Text(dhcp.OptTFTPServer, c.decision.NextServer.String()))
	}
	if c.decision.Mode == boot.ProxyOnly {
		return r
	}
	r.Add(c.network.options...)
	if c.machine != nil {
		r.Add(dhcp.Text(dhcp.OptHostName, c.machine.Name))
	}
	return r
}

func (d *Door) nak(c *client, why error) *dhcp.Reply {
	r := &dhcp.Reply{Type: dhcp.Nak, Server: c.server}
	r.Add(dhcp.Text(dhcp.OptMessage, why.Error()))
	return r
}
