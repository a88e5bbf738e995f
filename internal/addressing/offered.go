package addressing

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of the offers that are remembered.
const (
	offerTTL  = 30 * time.Second
	maxOffers = 64 << 10
)

// offered remembers which addresses were offered and not bound yet, so that machines which boot together are not
// offered the same one. Nothing depends on it: the record of an address decides who has it, and a head that forgot
// all offers binds as well.
type offered struct {
	mu sync.Mutex
	// guards following
	byAddr map[netip.Addr]offer
	swept  time.Time
}

type offer struct {
	mac   string
	known bool // the port is a known machine's, which may have what was offered to unknown ones
	until time.Time
}

// blocks reports whether an offer keeps an address from another port.
func (v offer) blocks(mac string, known bool, now time.Time) bool {
	return v.mac != mac && (v.known || !known) && now.Before(v.until)
}

func newOffered() *offered { return &offered{byAddr: map[netip.Addr]offer{}} }

// toOther reports whether an address was offered a moment ago to another port, which keeps it from this one.
func (o *offered) toOther(a netip.Addr, mac string, known bool, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.byAddr[a]
	return ok && last.blocks(mac, known, now)
}

// isTo reports whether an address was offered to a port a moment ago.
func (o *offered) isTo(a netip.Addr, mac string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := o.byAddr[a]
	return last.mac == mac && now.Before(last.until)
}

// add notes an offer; it is false if the address was offered to another port meanwhile. When there are too many
// offers, further ones are not remembered.
func (o *offered) add(a netip.Addr, mac string, known bool, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, ok := o.byAddr[a]; ok && last.blocks(mac, known, now) {
		return false
	}
	if len(o.byAddr) >= maxOffers && now.Sub(o.swept) >= time.Second {
		o.sweep(now)
	}
	if len(o.byAddr) < maxOffers {
		o.byAddr[a] = offer{mac, known, now.Add(offerTTL)}
	}
	return true
}

func (o *offered) sweep(now time.Time) {
	o.swept = now
	for a, v := range o.byAddr {
		if !now.Before(v.until) {
			delete(o.byAddr, a)
		}
	}
}

// remove forgets an offer to a port.
func (o *offered) remove(a netip.Addr, mac string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byAddr[a].mac == mac {
		delete(o.byAddr, a)
	}
}
