package fleet

import (
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/netconfig"
)

// network returns the network configuration of the machine's first NIC that has an address.
func (f *Fleet) network(m *trivet.Machine) *trivet.RunNetwork {
	a := f.bootAddress(m)
	if a == nil {
		return nil
	}
	n, err := f.Networks.Get(a.Spec.Network)
	if err != nil {
		return nil
	}
	return runNetwork(n, a.Spec.MAC, a.Name)
}

// bootAddress returns the shared address of the machine's first NIC that has one in a network.
func (f *Fleet) bootAddress(m *trivet.Machine) *trivet.Address {
	for _, nic := range m.Spec.NICs {
		for _, a := range f.AddressesOf(nic.MAC) {
			if _, err := f.Networks.GetShared(a.Spec.Network); err == nil && !a.Status.Declined {
				return a
			}
		}
	}
	return nil
}

// propose returns an address for a machine that has none, as far as its network is known.
func (f *Fleet) propose(machine string) (*addressing.Proposal, error) {
	return f.proposeBy(f.Propose, machine)
}

func (f *Fleet) proposeBy(propose func(*trivet.Machine) (*addressing.Proposal, error), machine string) (
	*addressing.Proposal, error) {
	m, err := f.Machines.GetShared(machine)
	if err != nil || propose == nil {
		return nil, nil
	}
	return propose(m)
}

// networkFor returns the network configuration of the machine's boot port: that of the address that moves to it. One
// that has no address is assigned the proposed one. It is nil where the network is not known.
func (f *Fleet) networkFor(t *transition, in arrival, address *addressing.Proposal) (*trivet.RunNetwork, error) {
	if in.network != nil {
		return in.network, nil
	}
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

// networkConfig returns the network of the machine's installed system for cloud-init. n is nil where the network of its
// boot port is not known: then that is its first port, which uses DHCP.
func networkConfig(m *trivet.Machine, interfaces []trivet.Interface, n *trivet.RunNetwork) string {
	if n == nil && len(m.Spec.NICs) > 0 {
		n = &trivet.RunNetwork{MAC: m.Spec.NICs[0].MAC}
	}
	return string(netconfig.Render(interfaces, n))
}
