package fleet

import (
	"net/netip"
	"net/url"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

// HeadURLs are where a machine reaches the heads: their APIs, and their boot doors, which serve blobs. Those in the
// machine's own network come first. Without a machine: where anybody does.
func (f *Fleet) HeadURLs(m *trivet.Machine) (api, boot []string) {
	for h := range f.Heads.AllShared() {
		if h.Serves() {
			api = append(api, h.Status.API...)
			boot = append(boot, h.Status.Boot...)
		}
	}
	if m == nil {
		return api, boot
	}
	var nets []netip.Prefix
	for _, nic := range m.Spec.NICs {
		for _, a := range f.Addresses.SharedBy(state.ByMAC, nic.MAC) {
			if n, err := f.Networks.GetShared(a.Spec.Network); err == nil {
				nets = append(nets, n.Spec.CIDR)
			}
		}
	}
	nearFirst(api, nets)
	nearFirst(boot, nets)
	return api, boot
}

func nearFirst(urls []string, nets []netip.Prefix) {
	near := func(text string) int {
		u, err := url.Parse(text)
		if err != nil {
			return 1
		}
		ip, err := netip.ParseAddr(u.Hostname())
		if err == nil && slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(urls, func(a, b string) int { return near(a) - near(b) })
}
