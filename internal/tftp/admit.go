package tftp

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/trivet-project/trivet/internal/limit"
)

// defaultLimits are those of concurrent transfers. A peer is recognised by its first ACK: before that, its address may
// be forged.
var defaultLimits = limit.Limits{Unknown: 512, PerAddress: 16, Known: 1024, KnownPerAddress: 64}

// errReplaced ends a transfer whose peer has acknowledged nothing, when another one needs its space.
var errReplaced = errors.New("too many transfers; try again")

// admission bounds the concurrent transfers, and detects a request that was sent again while its transfer runs.
type admission struct {
	limits *limit.Set

	mu    sync.Mutex
	peers map[netip.AddrPort]struct{} // guarded by mu
}

func newAdmission(limits *limit.Set) *admission {
	if limits == nil {
		limits = limit.NewSet(defaultLimits)
	}
	return &admission{limits: limits, peers: make(map[netip.AddrPort]struct{})}
}

// admitted is a transfer that was admitted.
type admitted struct {
	ctx   context.Context // ends when its space is needed
	entry *limit.Entry
	leave func() // must be called at its end
}

// enter admits a transfer; nil and the reason if it is not admitted.
func (a *admission) enter(ctx context.Context, peer netip.AddrPort) (t *admitted, reason string) {
	if !a.add(peer) {
		return nil, "repeated"
	}
	ctx, cancel := context.WithCancelCause(ctx)
	entry := a.limits.Enter(peer.Addr(), func() { cancel(errReplaced) })
	if entry == nil {
		cancel(nil)
		a.remove(peer)
		return nil, "limit"
	}
	return &admitted{ctx, entry, func() {
		cancel(nil)
		entry.Leave()
		a.remove(peer)
	}}, ""
}

func (a *admission) add(peer netip.AddrPort) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, running := a.peers[peer]; running {
		return false
	}
	a.peers[peer] = struct{}{}
	return true
}

func (a *admission) remove(peer netip.AddrPort) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.peers, peer)
}
