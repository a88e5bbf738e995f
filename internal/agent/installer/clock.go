package installer

import (
	"sync"
	"time"
)

// Clock is the heads' time as the agent knows it. Machines boot with clocks that are hours off, and requests are signed
// with the time. It counts on by the monotonic clock, so that a jump of the machine's own clock changes nothing. The zero
// value is the machine's clock.
type Clock struct {
	mu   sync.Mutex // guards following
	head time.Time
	at   time.Time
}

// Learn takes a head's time from an answer that has just come.
func (c *Clock) Learn(head time.Time) {
	if c == nil || head.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.head, c.at = head, time.Now()
}

// Now is the heads' time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head.IsZero() {
		return time.Now()
	}
	return c.head.Add(time.Since(c.at))
}
