package addressing

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// maxHeard bounds the requests to other servers that are remembered.
const maxHeard = 64 << 10

// heard remembers which port requested which address from another server, in networks where Trivet is a proxy. It
// is lost at a restart.
type heard struct {
	mu sync.Mutex
	// guards following
	byAddr map[netip.Addr]string // MAC
	byMAC  map[string]heardAddr
	swept  time.Time
}

type heardAddr struct {
	addr netip.Addr
	at   time.Time
}

func newHeard() *heard { return &heard{byAddr: map[netip.Addr]string{}, byMAC: map[string]heardAddr{}} }

func (h *heard) note(mac string, a netip.Addr, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.byMAC) >= maxHeard && now.Sub(h.swept) >= time.Second {
		h.sweep(now)
	}
	if _, known := h.byMAC[mac]; !known && len(h.byMAC) >= maxHeard || !a.IsValid() {
		return
	}
	h.forget(mac)
	h.forget(h.byAddr[a])
	h.byAddr[a], h.byMAC[mac] = mac, heardAddr{a, now}
}

// heardTTL is how long a request is remembered at least.
const heardTTL = 10 * time.Minute

func (h *heard) sweep(now time.Time) {
	h.swept = now
	for mac, v := range h.byMAC {
		if now.Sub(v.at) >= heardTTL {
			h.forget(mac)
		}
	}
}

// forget removes a port. h.mu is held.
func (h *heard) forget(mac string) {
	if v, ok := h.byMAC[mac]; ok {
		delete(h.byAddr, v.addr)
		delete(h.byMAC, mac)
	}
}

// check refuses an address that another port requested, and a port that requested another address.
func (h *heard) check(mac string, a netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if other, ok := h.byAddr[a]; ok && other != mac {
		return fmt.Errorf("%w: %s is the address of %s", trivet.ErrForbidden, a, other)
	}
	if own, ok := h.byMAC[mac]; ok && own.addr != a {
		return fmt.Errorf("%w: %s has the address %s", trivet.ErrForbidden, mac, own.addr)
	}
	return nil
}
