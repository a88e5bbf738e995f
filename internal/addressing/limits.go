package addressing

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bounds of new leases of unknown ports. A rack that is powered on for the first time is within them, a host that
// invents clients is not.
const (
	networkBurst        = 512     // of a network, beside its rate
	portRate, portBurst = 0.1, 16 // of a switch's port, per second
	maxPorts            = 4096
)

// limits bounds the new leases of unknown ports, by network, and by the port of the switch where a relay names it. A
// hostile client can name any port, as its own relay, so that it is bound by the network's limit only.
type limits struct {
	mu        sync.Mutex
	byNetwork map[string]*rate.Limiter     // guarded by mu
	byPort    map[switchPort]*rate.Limiter // guarded by mu
}

type switchPort struct{ network, port string }

func newLimits() *limits {
	return &limits{byNetwork: map[string]*rate.Limiter{}, byPort: map[switchPort]*rate.Limiter{}}
}

// allow reports whether another unknown port may get a lease in a network with this rate. port is empty if no relay
// names it.
func (l *limits) allow(network, port string, perSecond int, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.byNetwork[network]
	if all == nil || all.Limit() != rate.Limit(perSecond) {
		all = rate.NewLimiter(rate.Limit(perSecond), networkBurst)
		l.byNetwork[network] = all
	}
	if all.TokensAt(now) < 1 {
		return false
	}
	if p := l.of(switchPort{network, port}, now); p != nil && !p.AllowN(now, 1) {
		return false
	}
	return all.AllowN(now, 1)
}

// of returns the limiter of a switch's port; nil if none is named, or there are too many. Those that are full again are
// forgotten. l.mu is held.
func (l *limits) of(p switchPort, now time.Time) *rate.Limiter {
	if p.port == "" {
		return nil
	}
	if found := l.byPort[p]; found != nil {
		return found
	}
	if len(l.byPort) >= maxPorts {
		for other, v := range l.byPort {
			if v.TokensAt(now) >= portBurst {
				delete(l.byPort, other)
			}
		}
	}
	if len(l.byPort) >= maxPorts {
		return nil
	}
	l.byPort[p] = rate.NewLimiter(portRate, portBurst)
	return l.byPort[p]
}
