package addressing

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Network is a network that addresses are assigned in.
type Network struct {
	Record *trivet.Network // the local copy's own: it is never changed
	Lease  time.Duration

	mu sync.Mutex
	// guards following
	full map[string]time.Time // by use: when all its addresses were found to be taken
}

// networkIndex finds networks by address.
type networkIndex struct {
	byPrefix map[netip.Prefix]*Network
	lengths  []int // of the prefixes, longest first
}

func newNetworkIndex(records []*trivet.Network) *networkIndex {
	x := &networkIndex{byPrefix: map[netip.Prefix]*Network{}}
	for _, r := range records {
		x.byPrefix[r.Spec.CIDR] = newNetwork(r)
		x.lengths = append(x.lengths, r.Spec.CIDR.Bits())
	}
	slices.Sort(x.lengths)
	slices.Reverse(x.lengths)
	x.lengths = slices.Compact(x.lengths)
	return x
}

func newNetwork(r *trivet.Network) *Network {
	return &Network{Record: r, Lease: r.Spec.LeaseOrDefault().D(), full: map[string]time.Time{}}
}

// Network returns the network that contains an address; nil if none does.
func (l *Leases) Network(a netip.Addr) *Network {
	if !a.IsValid() {
		return nil
	}
	x := l.networks.Get()
	for _, bits := range x.lengths {
		if p, err := a.Prefix(bits); err == nil && x.byPrefix[p] != nil {
			return x.byPrefix[p]
		}
	}
	return nil
}

// fullFor is how long a network that was found full is not searched again.
const fullFor = 2 * time.Second

func (n *Network) isFull(use string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	since, ok := n.full[use]
	return ok && now.Sub(since) < fullFor
}

func (n *Network) setFull(use string, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.full[use] = now
}
