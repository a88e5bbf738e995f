package netboot

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
)

// headTable is all heads that serve machines, as their records say. It is made anew when one has changed.
type headTable struct {
	revision int64
	records  []*trivet.Head
	dhcp     []server                // those that answer DHCP, in the order of their names, which is the same everywhere
	ours     map[netip.Addr]struct{} // what no machine may get
}

// server is a head that answers DHCP, and from where.
type server struct {
	name  string
	addrs []netip.Addr
}

// heads gives the table.
type heads struct {
	tables  *state.Tables
	current atomic.Pointer[headTable]
}

func (h *heads) table() *headTable {
	revision := h.tables.Store.Revision()
	t := h.current.Load()
	if t != nil && t.revision == revision {
		return t
	}
	records := slices.Collect(h.tables.Heads.AllShared())
	next := &headTable{revision: revision, records: records}
	if t != nil && slices.Equal(records, t.records) {
		next.dhcp, next.ours = t.dhcp, t.ours
	} else {
		next.build()
	}
	h.current.Store(next)
	return next
}

func (t *headTable) build() {
	t.ours = map[netip.Addr]struct{}{}
	for _, r := range t.records {
		if !r.Serves() {
			continue
		}
		for _, text := range slices.Concat(r.Status.API, r.Status.Boot) {
			if a, err := netip.ParseAddr(hostOf(text)); err == nil {
				t.ours[a] = struct{}{}
			}
		}
		for _, a := range r.Status.DHCP {
			t.ours[a] = struct{}{}
		}
		if len(r.Status.DHCP) > 0 {
			t.dhcp = append(t.dhcp, server{r.Name, r.Status.DHCP})
		}
	}
	slices.SortFunc(t.dhcp, func(a, b server) int { return strings.Compare(a.name, b.name) })
}

// at is the head that answers DHCP from an address; empty if none does.
func (t *headTable) at(a netip.Addr) string {
	for _, s := range t.dhcp {
		if slices.Contains(s.addrs, a) {
			return s.name
		}
	}
	return ""
}

// on are the heads that hear what is broadcast in a network, or what relays send if that is nil.
func (t *headTable) on(n *trivet.Network) []server {
	if n == nil {
		return t.dhcp
	}
	return slices.DeleteFunc(slices.Clone(t.dhcp), func(s server) bool { return !slices.ContainsFunc(s.addrs, n.Spec.CIDR.Contains) })
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
