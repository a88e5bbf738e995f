package limit

import (
	"container/list"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate bounds how often an address begins what costs the server time before it knows the caller: TLS handshakes. An
// address whose callers were recognised a while ago has a higher rate. It is safe for concurrent use.
type Rate struct {
	unknown, known class

	mu sync.Mutex // guards the tables of both classes
}

// class is the limits of a kind of addresses, and those of its addresses that were in use last.
type class struct {
	perSecond rate.Limit
	burst     int
	table     map[netip.Addr]*list.Element // of *bucket
	recent    list.List                    // the front was used last
}

type bucket struct {
	key   netip.Addr
	rate  *rate.Limiter
	until time.Time // of a known address: when it becomes unknown
}

const (
	// rateAddresses bounds the addresses of a class that are remembered. One that is forgotten begins again.
	rateAddresses = 16 << 10
	// rateKnown is how long an address stays known after one of its callers was recognised.
	rateKnown = 10 * time.Minute
)

// NewRate returns a rate for unknown addresses with a burst, both of which are times known as high for known ones.
func NewRate(perSecond float64, burst, known int) *Rate {
	return &Rate{
		unknown: class{perSecond: rate.Limit(perSecond), burst: burst, table: map[netip.Addr]*list.Element{}},
		known: class{perSecond: rate.Limit(perSecond * float64(known)), burst: burst * known,
			table: map[netip.Addr]*list.Element{}},
	}
}

// Allow reports whether an address may begin now. A nil Rate has no limit.
func (r *Rate) Allow(addr netip.Addr) bool {
	if r == nil {
		return true
	}
	key, now := keyOf(addr), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.known.find(key); b != nil && now.Before(b.until) {
		return b.rate.AllowN(now, 1)
	}
	b := r.unknown.find(key)
	if b == nil {
		b = r.unknown.add(key)
	}
	return b.rate.AllowN(now, 1)
}

// Recognise notes that a caller at an address is known.
func (r *Rate) Recognise(addr netip.Addr) {
	if r == nil {
		return
	}
	key := keyOf(addr)
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.known.find(key)
	if b == nil {
		b = r.known.add(key)
	}
	b.until = time.Now().Add(rateKnown)
}

// find returns the bucket of an address that is remembered, which is in use now.
func (c *class) find(key netip.Addr) *bucket {
	e := c.table[key]
	if e == nil {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*bucket)
}

// add adds a full bucket, and forgets the one that was not used for longest where there are too many.
func (c *class) add(key netip.Addr) *bucket {
	if len(c.table) >= rateAddresses {
		oldest := c.recent.Back()
		delete(c.table, c.recent.Remove(oldest).(*bucket).key)
	}
	b := &bucket{key: key, rate: rate.NewLimiter(c.perSecond, c.burst)}
	c.table[key] = c.recent.PushFront(b)
	return b
}
