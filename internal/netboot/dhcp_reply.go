package netboot

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// reply returns an offer or acknowledgement of the decision; without an address, only what to boot and from where.
func (s *Server) reply(c *client, t dhcp.Type, a netip.Addr, lease time.Duration) *dhcp.Reply {
	r := &dhcp.Reply{Type: t, Server: c.server, Address: a, Lease: lease,
		Class: classes[c.decision.Class], NextServer: c.decision.NextServer, BootFile: c.decision.BootFile}
	if r.Class == dhcp.PXEClient {
		r.Add(dhcp.SkipDiscovery(), dhcp.Text(dhcp.OptTFTPServer, c.decision.NextServer.String()))
	}
	if c.decision.Mode == boot.ProxyOnly {
		return r
	}
	r.Add(s.networkOptions(c.lease.Network.Record)...)
	if c.machine != nil {
		r.Add(dhcp.Text(dhcp.OptHostName, c.machine.Name))
	}
	return r
}

func (s *Server) nak(c *client, reason error) *dhcp.Reply {
	r := &dhcp.Reply{Type: dhcp.Nak, Server: c.server}
	r.Add(dhcp.Text(dhcp.OptMessage, reason.Error()))
	return r
}

// networkOptions returns the options of each reply in a network. They are constant.
func (s *Server) networkOptions(n *trivet.Network) []dhcp.Option {
	if options, ok := s.options.Get()[n]; ok {
		return options
	}
	return newOptions(n) // the record changed since the packet was looked up
}

func allOptions(networks []*trivet.Network) map[*trivet.Network][]dhcp.Option {
	all := make(map[*trivet.Network][]dhcp.Option, len(networks))
	for _, n := range networks {
		all[n] = newOptions(n)
	}
	return all
}

// newOptions returns the options of a network. Their capacity is their length, so that appending copies them.
func newOptions(n *trivet.Network) []dhcp.Option {
	spec := &n.Spec
	all := []dhcp.Option{
		dhcp.SubnetMask(spec.CIDR),
		dhcp.Addrs(dhcp.OptRouter, spec.Gateway),
		dhcp.Addrs(dhcp.OptDNS, spec.DNS...),
		dhcp.Text(dhcp.OptDomainName, spec.Domain),
	}
	if spec.MTU > 0 && spec.MTU <= math.MaxUint16 {
		all = append(all, dhcp.Option{Code: dhcp.OptMTU, Value: []byte{byte(spec.MTU >> 8), byte(spec.MTU)}})
	}
	all = append(all, dhcp.Addrs(dhcp.OptNTP, spec.NTP...))
	return slices.Clip(slices.DeleteFunc(all, func(o dhcp.Option) bool { return len(o.Value) == 0 }))
}
