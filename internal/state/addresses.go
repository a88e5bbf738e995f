package state

import (
	"net/netip"
	"slices"

	"github.com/trivet-project/trivet"
)

// AddressesOf returns the shared addresses of a port. One that followed its provision from another machine is first:
// the port has another one of its own until the run has succeeded.
func (t *Tables) AddressesOf(mac string) []*trivet.Address {
	all := slices.Clone(t.Addresses.SharedBy(ByMAC, mac))
	slices.SortStableFunc(all, func(a, b *trivet.Address) int { return rank(a) - rank(b) })
	return all
}

func rank(a *trivet.Address) int {
	if a.Spec.Provision != "" {
		return 0
	}
	return 1
}

// NetworkAround returns the shared network that contains an address; nil if none does.
func (t *Tables) NetworkAround(a netip.Addr) *trivet.Network {
	for bits := a.BitLen(); bits > 0; bits-- {
		p, err := a.Prefix(bits)
		if err != nil {
			return nil
		}
		for _, n := range t.Networks.SharedBy(ByCIDR, p.String()) {
			return n
		}
	}
	return nil
}
