package fleet

import (
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

// network returns the network configuration of the machine's first NIC that has an address.
func (f *Fleet) network(m *trivet.Machine) *trivet.RunNetwork {
	for _, nic := range m.Spec.NICs {
		for _, a := range f.Addresses.ListBy(state.ByMAC, nic.MAC) {
			n, err := f.Networks.Get(a.Spec.Network)
			if err != nil || a.Status.Declined {
				continue
			}
			return runNetwork(n, nic.MAC, a.Name)
		}
	}
	return nil
}

func runNetwork(n *trivet.Network, mac, address string) *trivet.RunNetwork {
	out := &trivet.RunNetwork{MAC: mac, Domain: n.Spec.Domain, MTU: n.Spec.MTU}
	if ip, err := netip.ParseAddr(address); err == nil {
		out.Address = netip.PrefixFrom(ip, n.Spec.CIDR.Bits()).String()
	}
	if n.Spec.Gateway.IsValid() {
		out.Gateway = n.Spec.Gateway.String()
	}
	for _, dns := range n.Spec.DNS {
		out.DNS = append(out.DNS, dns.String())
	}
	return out
}
