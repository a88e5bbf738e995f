package presence

import (
	"context"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/uptime"
)

// Clock is this head's [uptime.Clock]. It is fed with the time of this process and whether the store has a leader.
type Clock struct {
	hasLeader func() bool
	mu        sync.Mutex
	clock     uptime.Clock // guarded by mu
}

// NewClock returns a clock that counts from now on. Run must follow.
func NewClock(hasLeader func() bool) *Clock {
	c := &Clock{hasLeader: hasLeader}
	c.Read()
	return c
}

// Read returns the clock as it is now.
func (c *Clock) Read() uptime.Clock {
	led := c.hasLeader()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock.Advance(time.Now(), led)
	return c.clock
}

// sampling is how often it is read whether the store has a leader: how much more than the time without one is not
// counted.
const sampling = uptime.Interval / 5

// Run advances the clock until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.Read()
		}
	}
}
