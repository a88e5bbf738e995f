package deadline

import (
	"context"
	"sync"
	"time"
)

// uptime counts the time in which agents can be heard: this head runs, and the store has a leader. After a gap it
// stops for as long as the gap was, at most for settleTime: agents report then what happened during the gap.
type uptime struct {
	hasLeader func() bool
	mu        sync.Mutex
	sum       time.Duration // guarded by mu, as all that follows; counted up to the last sample
	last      time.Time     // of the samples
	pause     time.Duration // how long counting is still stopped
	counting  bool          // since the last sample
}

const (
	sampleInterval = time.Second
	settleTime     = 30 * time.Second // more than agents leave between two attempts
)

func newUptime(hasLeader func() bool) *uptime {
	return &uptime{hasLeader: hasLeader, last: time.Now(), counting: true}
}

// run samples until ctx ends.
func (u *uptime) run(ctx context.Context) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		u.sample(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// now returns the time counted so far, and whether counting goes on.
func (u *uptime) now() (time.Duration, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sum + u.countable(time.Since(u.last)), u.counting
}

// countable returns the counted part of the time since the last sample: at most the interval of samples, since a
// process that was stopped received nothing. mu is held.
func (u *uptime) countable(since time.Duration) time.Duration {
	if !u.counting {
		return 0
	}
	return min(since, 2*sampleInterval)
}

func (u *uptime) sample(now time.Time) {
	led := u.hasLeader()
	u.mu.Lock()
	defer u.mu.Unlock()
	since := now.Sub(u.last)
	u.sum += u.countable(since)
	u.last = now
	if !led || since > 2*sampleInterval {
		u.pause = min(u.pause+since, settleTime)
	} else {
		u.pause = max(u.pause-since, 0)
	}
	u.counting = led && u.pause == 0
}
