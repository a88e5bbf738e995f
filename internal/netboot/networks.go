package netboot

import (
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/state"
)

// network is a network's record, with what every answer there needs.
type network struct {
	record  *trivet.Network
	lease   time.Duration
	options []dhcp.Option // constant; its capacity is its length, so that appending copies

	mu sync.Mutex
	// guards following
	full map[string]time.Time // by use: when all its addresses were found to be taken
}

// networks finds the network of an address. The table is made anew when a network's record has changed, which is looked
// for when anything has.
type networks struct {
	tables  *state.Tables
	current atomic.Pointer[networkTable]
}

type networkTable struct {
	revision int64
	records  []*trivet.Network
	byPrefix map[netip.Prefix]*network
	lengths  []int // of the prefixes, longest first
}

// of is the network that an address is in; nil if it is in none.
func (n *networks) of(a netip.Addr) *network {
	if !a.IsValid() {
		return nil
	}
	t := n.table()
	for _, bits := range t.lengths {
		if p, err := a.Prefix(bits); err == nil && t.byPrefix[p] != nil {
			return t.byPrefix[p]
		}
	}
	return nil
}

func (n *networks) table() *networkTable {
	revision := n.tables.Store.Revision()
	t := n.current.Load()
	if t != nil && t.revision == revision {
		return t
	}
	records := slices.Collect(n.tables.Networks.AllShared())
	next := &networkTable{revision: revision, records: records}
	if t != nil && slices.Equal(records, t.records) {
		next.byPrefix, next.lengths = t.byPrefix, t.lengths
	} else {
		next.build()
	}
	n.current.Store(next)
	return next
}

func (t *networkTable) build() {
	t.byPrefix = map[netip.Prefix]*network{}
	for _, r := range t.records {
		t.byPrefix[r.Spec.CIDR] = newNetwork(r)
		t.lengths = append(t.lengths, r.Spec.CIDR.Bits())
	}
	slices.Sort(t.lengths)
	slices.Reverse(t.lengths)
	t.lengths = slices.Compact(t.lengths)
}

func newNetwork(r *trivet.Network) *network {
	s := &r.Spec
	n := &network{record: r, lease: s.Lease.D(), full: map[string]time.Time{}}
	if n.lease == 0 {
		n.lease = trivet.DefaultLease.D()
	}
	add := func(o dhcp.Option) {
		if len(o.Value) > 0 {
			n.options = append(n.options, o)
		}
	}
	add(dhcp.SubnetMask(s.CIDR))
	add(dhcp.Addrs(dhcp.OptRouter, s.Gateway))
	add(dhcp.Addrs(dhcp.OptDNS, s.DNS...))
	add(dhcp.Text(dhcp.OptDomainName, s.Domain))
	if s.MTU > 0 && s.MTU <= math.MaxUint16 {
		add(dhcp.Option{Code: dhcp.OptMTU, Value: []byte{byte(s.MTU >> 8), byte(s.MTU)}})
	}
	add(dhcp.Addrs(dhcp.OptNTP, s.NTP...))
	n.options = slices.Clip(n.options)
	return n
}

// fullFor is how long a network that was found full is not searched again.
const fullFor = 2 * time.Second

func (n *network) isFull(use string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, ok := n.full[use]
	return ok && now.Sub(since) < fullFor
}

func (n *network) setFull(use string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.full[use] = now
}
