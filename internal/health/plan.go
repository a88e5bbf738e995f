package health

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// target is one head in one network, as this head probes it.
type target struct {
	network, head string
	from, to      netip.Addr // of this head, and of the other one
	boot          string     // its boot server, "http://10.0.0.1:7481"
}

// maxTargets bounds the probes of one head.
const maxTargets = 128

// plan returns what a head is to probe: in each network that it has an address in, all heads that have one, and
// itself.
func plan(self string, heads []*trivet.Head, networks []*trivet.Network) (all []target) {
	i := slices.IndexFunc(heads, func(h *trivet.Head) bool { return h.Name == self })
	if i < 0 {
		return nil
	}
	for _, n := range networks {
		from := addressIn(heads[i], n)
		if n.Spec.DHCPOrDefault() == "off" || !from.IsValid() {
			continue
		}
		for _, h := range heads {
			if to := addressIn(h, n); h.Serves() && to.IsValid() {
				all = append(all, target{network: n.Name, head: h.Name, from: from, to: to, boot: bootURL(h, to)})
			}
		}
	}
	slices.SortFunc(all, func(a, b target) int {
		return cmp.Or(strings.Compare(a.network, b.network), strings.Compare(a.head, b.head))
	})
	return all[:min(len(all), maxTargets)]
}

// addressIn returns the address from which a head serves DHCP in a network; not valid where it has none.
func addressIn(h *trivet.Head, n *trivet.Network) netip.Addr {
	for _, a := range h.Status.DHCP {
		if n.Spec.CIDR.Contains(a) {
			return a
		}
	}
	return netip.Addr{}
}

// bootURL returns the boot server of a head at one of its addresses; empty where it has none.
func bootURL(h *trivet.Head, at netip.Addr) string {
	for _, text := range h.Status.Boot {
		if u, err := url.Parse(text); err == nil && u.Port() != "" {
			return "http://" + at.String() + ":" + u.Port()
		}
	}
	return ""
}
