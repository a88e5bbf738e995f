package store

import (
	"context"
	"slices"
	"sync"
)

// pending holds the waiters for the feed: for a revision, or for the outcome of a transaction.
type pending struct {
	mu      sync.Mutex
	rev     int64             // guarded by mu, as all below
	waiters []waiter          // for revisions above rev
	txs     map[txID]*outcome // transactions in progress
}

type waiter struct {
	rev  int64
	done chan struct{}
}

// outcome is the state of a transaction in the feed.
type outcome struct {
	rev    int64         // at which it was committed; 0: not seen in the feed
	seen   chan struct{} // closed when it is seen in the feed
	missed bool          // the feed skipped revisions since the transaction began
}

// begin registers a transaction's ID with the feed, until end.
func (p *pending) begin(id txID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.txs[id] = &outcome{seen: make(chan struct{})}
}

func (p *pending) end(id txID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.txs, id)
}

// outcome returns the state of a transaction in the feed.
func (p *pending) outcome(id txID) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *p.txs[id]
}

// committed records that the feed has a transaction.
func (p *pending) committed(id txID, rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.txs[id]; o != nil && o.rev == 0 {
		o.rev = rev
		close(o.seen)
	}
}

// markMissed records that the feed skipped revisions.
func (p *pending) markMissed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.txs {
		o.missed = true
	}
}

// reached wakes the waiters for a revision, whose snapshot can now be read.
func (p *pending) reached(rev int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rev = rev
	p.waiters = slices.DeleteFunc(p.waiters, func(w waiter) bool {
		if w.rev <= rev {
			close(w.done)
		}
		return w.rev <= rev
	})
}

// wait returns when the snapshot of a revision, or a later one, can be read.
func (p *pending) wait(ctx context.Context, rev int64) error {
	p.mu.Lock()
	if rev <= p.rev {
		p.mu.Unlock()
		return nil
	}
	w := waiter{rev, make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiters = slices.DeleteFunc(p.waiters, func(other waiter) bool { return other.done == w.done })
		return ctx.Err()
	}
}
