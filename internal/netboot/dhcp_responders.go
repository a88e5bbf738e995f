package netboot

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// responders are the heads that answer DHCP, in the order of their names, which is the same on every head.
type responders []responder

// responder is a head that answers DHCP, and its addresses.
type responder struct {
	name  string
	addrs []netip.Addr
}

func newResponders(records []*trivet.Head) responders {
	var all responders
	for _, r := range records {
		if r.Serves() && len(r.Status.DHCP) > 0 {
			all = append(all, responder{r.Name, r.Status.DHCP})
		}
	}
	slices.SortFunc(all, func(a, b responder) int { return strings.Compare(a.name, b.name) })
	return all
}

// at returns the name of the head that answers DHCP from an address; empty if none does.
func (all responders) at(a netip.Addr) string {
	for _, r := range all {
		if slices.Contains(r.addrs, a) {
			return r.name
		}
	}
	return ""
}

// on returns the heads that receive the broadcasts of a network, or, if it is nil, what relays send.
func (all responders) on(n *trivet.Network) responders {
	if n == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(r responder) bool {
		return !slices.ContainsFunc(r.addrs, n.Spec.CIDR.Contains)
	})
}
