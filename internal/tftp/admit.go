package tftp

import (
	"net/netip"
	"sync"
)

// admission bounds the concurrent transfers, in total and to one address, and detects a request that was sent again
// while its transfer runs.
type admission struct {
	total, perHost int

	mu    sync.Mutex // guards following
	peers map[netip.AddrPort]struct{}
	hosts map[netip.Addr]int
}

func newAdmission(total, perHost int) *admission {
	return &admission{
		total: total, perHost: perHost,
		peers: make(map[netip.AddrPort]struct{}),
		hosts: make(map[netip.Addr]int),
	}
}

// enter admits a transfer, and returns the function to call at its end; nil and the reason if it is not admitted.
func (a *admission) enter(peer netip.AddrPort) (leave func(), reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, running := a.peers[peer]; running {
		return nil, "repeated"
	}
	if len(a.peers) >= a.total || a.hosts[peer.Addr()] >= a.perHost {
		return nil, "limit"
	}
	a.peers[peer] = struct{}{}
	a.hosts[peer.Addr()]++
	return func() { a.leave(peer) }, ""
}

func (a *admission) leave(peer netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.peers, peer)
	if a.hosts[peer.Addr()]--; a.hosts[peer.Addr()] == 0 {
		delete(a.hosts, peer.Addr())
	}
}
