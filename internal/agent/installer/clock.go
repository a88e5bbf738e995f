package installer

import (
	"sync"
	"time"
)

// Clock is the agent's estimate of the heads' time. Machines boot with clocks that are hours off, and requests are
// signed with the time. It advances by the monotonic clock, so that a jump of the machine's clock changes nothing. The
// zero value is the machine's clock.
type Clock struct {
	mu   sync.Mutex // guards following
	head time.Time
	at   time.Time
}

// Learn sets the time from an answer that was just received.
func (c *Clock) Learn(head time.Time) {
	if c == nil || head.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head, c.at = head, time.Now()
}

// Now returns the heads' time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head.IsZero() {
		return time.Now()
	}
	return c.head.Add(time.Since(c.at))
}
