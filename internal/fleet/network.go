package fleet

import (
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
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

// propose returns an address for a machine that has none, as far as its network is known.
func (f *Fleet) propose(machine string) (*addressing.Proposal, error) {
	m, err := f.Machines.GetShared(machine)
	if err != nil || f.Propose == nil {
		return nil, nil
	}
	return f.Propose(m)
}

// networkFor returns the network configuration of the machine's boot port. One that has no address is assigned the
// proposed one. It is nil where the network is not known.
func (f *Fleet) networkFor(t *transition, address *addressing.Proposal) (*trivet.RunNetwork, error) {
	if n := f.network(t.machine); n != nil || address == nil {
		return n, nil
	}
	record, n, err := address.Assign(t.tx)
	if err != nil {
		return nil, err
	}
	return runNetwork(n, record.Spec.MAC, record.Name), nil
}

func runNetwork(n *trivet.Network, mac, address string) *trivet.RunNetwork {
	out := &trivet.RunNetwork{Name: n.Name, MAC: mac, Domain: n.Spec.Domain, MTU: n.Spec.MTU}
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
