package netboot

import (
	"net/netip"
	"sync"
	"time"
)

// Bounds of the offers that are remembered.
const (
	offerLife = 30 * time.Second
	maxOffers = 64 << 10
)

// offers remembers which addresses were offered to whom and not yet taken, so that machines which boot together are not
// offered the same one. It is a courtesy, not a promise: an address is given by the record that says so, and a head that
// forgot all offers answers what follows them just as well.
type offers struct {
	mu sync.Mutex
	// guards following
	byAddr map[netip.Addr]offer
	swept  time.Time
}

type offer struct {
	mac   string
	until time.Time
}

func newOffers() *offers { return &offers{byAddr: map[netip.Addr]offer{}} }

// toOther says whether somebody else was offered the address a moment ago.
func (o *offers) toOther(a netip.Addr, mac string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.byAddr[a]
	return ok && last.mac != mac && now.Before(last.until)
}

// claim notes an offer; it is false if somebody else was offered the address meanwhile. When there are too many offers,
// further ones are not remembered.
func (o *offers) claim(a netip.Addr, mac string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last, ok := o.byAddr[a]; ok && last.mac != mac && now.Before(last.until) {
		return false
	}
	if len(o.byAddr) >= maxOffers && now.Sub(o.swept) >= time.Second {
		o.sweep(now)
	}
	if len(o.byAddr) < maxOffers {
		o.byAddr[a] = offer{mac, now.Add(offerLife)}
	}
	return true
}

func (o *offers) sweep(now time.Time) {
	o.swept = now
	for a, v := range o.byAddr {
		if !now.Before(v.until) {
			delete(o.byAddr, a)
		}
	}
}

// done forgets an offer: there is a record now, or the client chose another server's.
func (o *offers) done(a netip.Addr, mac string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byAddr[a].mac == mac {
		delete(o.byAddr, a)
	}
}
