package state

import (
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
