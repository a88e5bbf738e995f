package limit

import (
	"net/netip"
	"sync"
)

// Pool is an amount that callers share, bounded in total and for one address. It is safe for concurrent use.
type Pool struct {
	total, perAddress int64

	mu      sync.Mutex
	used    int64                // guarded by mu
	callers map[netip.Addr]int64 // guarded by mu; what each address has taken, none of them 0
}

// NewPool returns a pool of this total, of which one address may take perAddress at the same time.
func NewPool(total, perAddress int64) *Pool {
	return &Pool{total: total, perAddress: perAddress, callers: map[netip.Addr]int64{}}
}

// Take takes an amount and returns the function that gives it back; nil if there is not as much left. An address that
// is not valid has no limit of its own.
func (p *Pool) Take(addr netip.Addr, n int64) (giveBack func()) {
	key := keyOf(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+n > p.total || key.IsValid() && p.callers[key]+n > p.perAddress {
		return nil
	}
	p.add(key, n)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.add(key, -n)
	})
}

// add changes what an address has taken. p.mu is held.
func (p *Pool) add(key netip.Addr, n int64) {
	p.used += n
	if p.callers[key] += n; p.callers[key] == 0 {
		delete(p.callers, key)
	}
}
