// Package uptime is the one clock by which deadlines and silence are judged. It counts the time in which a head could
// have heard agents: the head runs, and the store has a leader. It is pure: times go in, durations come out.
package uptime

import "time"

const (
	// Interval is how often a clock must be advanced at least.
	Interval = time.Second
	// maxGap is the longest interval in which a head ran: after a longer one it was paused, and received nothing.
	maxGap = 2 * Interval
	// MaxSettle bounds the time after a gap that is not counted: it is more than agents leave between two attempts.
	MaxSettle = 30 * time.Second
	// minSettle is the least of it: agents try again twice in that time.
	minSettle = time.Second
)

// Clock counts the time of one head. After a gap, in which the head was paused or the store had no leader, counting
// starts again only after as long as the gap was, at least a second and at most MaxSettle: agents report then what
// happened during the gap. The zero value starts at its first Advance.
type Clock struct {
	counted    time.Duration
	missed     time.Duration
	settle     time.Duration // that is left
	leaderless time.Duration
	last       time.Time
	led        bool
}

// Advance sets the time, by a monotonic clock, and whether the store has a leader now.
func (c *Clock) Advance(now time.Time, led bool) {
	var passed time.Duration
	if !c.last.IsZero() {
		passed = max(0, now.Sub(c.last))
	}
	switch {
	case passed == 0:
	case !led || !c.led || passed > maxGap:
		c.settle = min(max(c.settle+passed, minSettle), MaxSettle)
		c.missed += passed
	case c.settle > 0:
		c.settle -= min(c.settle, passed)
		c.missed += passed
	default:
		c.counted += passed
	}
	if c.leaderless += passed; led {
		c.leaderless = 0
	}
	c.last, c.led = now, led
}

// Counted returns the time that was counted.
func (c *Clock) Counted() time.Duration { return c.counted }

// Missed returns the time that was not counted. What was counted of something is how long it took if that is the same
// at its beginning and end.
func (c *Clock) Missed() time.Duration { return c.missed }

// Counting reports whether time is counted now. Nothing may be judged while it is not.
func (c *Clock) Counting() bool { return c.led && c.settle == 0 }

// Leaderless returns for how long the store has had no leader.
func (c *Clock) Leaderless() time.Duration { return c.leaderless }

// Timer counts how much of one wait is used. The zero value is one that has not started.
type Timer struct {
	used, at time.Duration
	queued   bool
}

// StartTimer returns the timer of a wait of which a part is used already.
func StartTimer(used, at time.Duration) Timer { return Timer{used: used, at: at} }

// Advance returns how much of the wait is used at a counted time. The time until the next call is not used while the
// wait is queued: while what it waits for has not begun.
func (t *Timer) Advance(at time.Duration, queued bool) (used time.Duration) {
	if !t.queued {
		t.used += at - t.at
	}
	t.at, t.queued = at, queued
	return t.used
}

// Used returns how much of the wait was used at the last call of Advance, or as it was raised since.
func (t *Timer) Used() time.Duration { return t.used }

// Raise sets how much of the wait is used to at least what another head has counted.
func (t *Timer) Raise(used time.Duration) { t.used = max(t.used, used) }

// Silence returns for how long it is known that no head heard an agent, which this one learned was last heard at
// heard. All times are of this head's clock. reported is until when each of the other heads has reported what it
// heard: silence counts only up to the earliest. A head that has not reported within lostAfter is lost, and the silence
// counts from its loss, since its agents need time to find another head.
func Silence(heard, now time.Duration, reported []time.Duration, lostAfter time.Duration) time.Duration {
	until := now
	for _, r := range reported {
		if lost := r + lostAfter; now < lost {
			until = min(until, r)
		} else {
			heard = max(heard, lost)
		}
	}
	return max(0, until-heard)
}
