package installer

import (
	"math/rand/v2"
	"time"
)

// backoff is how long to wait after failures in a row: doubled each time up to a bound, with jitter, so that a thousand
// agents do not come back at one moment.
type backoff struct{ failures int }

func (b *backoff) reset() { b.failures = 0 }

func (b *backoff) next() time.Duration {
	d := min(backoffMin<<min(b.failures, 10), backoffMax)
	b.failures++
	return jitter(d)
}

// jitter returns between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
