package fleet

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/trivet-project/trivet"
)

// What a machine's agents write is bounded in rate, at each head, so that one that reports without an end, or boots
// again and again, costs others nothing: the store's history, its disk and the change feed are of all machines.

// Bounds of the writes of one machine's agents: so many at once, and so many in a second afterwards. What is reported
// meanwhile shares the next write.
const (
	reportBurst, reportRate = 256, 5
	helloBurst, helloRate   = 32, 0.2
	maxPaced                = 16 << 10 // that a pace remembers; those that could write a burst are forgotten first
)

// ErrTooOften means that a machine's agents have written too much. They send again what was not accepted.
var ErrTooOften = fmt.Errorf("%w: the agents of this machine write too often", trivet.ErrUnavailable)

// pace bounds the rate of each of many names.
type pace struct {
	perSecond rate.Limit
	burst     int
	mu        sync.Mutex
	limits    map[string]*rate.Limiter // guarded by mu
}

func newPace(perSecond rate.Limit, burst int) *pace {
	return &pace{perSecond: perSecond, burst: burst, limits: map[string]*rate.Limiter{}}
}

func (p *pace) allow(name string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limits[name] == nil {
		if len(p.limits) >= maxPaced {
			p.forget(now)
		}
		p.limits[name] = rate.NewLimiter(p.perSecond, p.burst)
	}
	return p.limits[name].AllowN(now, 1)
}

// forget makes space. p.mu is held.
func (p *pace) forget(now time.Time) {
	maps.DeleteFunc(p.limits, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= float64(p.burst) })
	if len(p.limits) >= maxPaced/2 { // else it would be done for each name
		clear(p.limits)
	}
}
