package installer

import (
	"time"

	"github.com/trivet-project/trivet/internal/wait"
)

// backoff is the pause after consecutive failures: doubled each time up to a limit, with jitter, so that a thousand
// agents do not retry at the same moment.
type backoff struct{ failures int }

func (b *backoff) reset() { b.failures = 0 }

func (b *backoff) next() time.Duration {
	d := min(backoffMin<<min(b.failures, 10), backoffMax)
	b.failures++
	return wait.Jitter(d)
}
