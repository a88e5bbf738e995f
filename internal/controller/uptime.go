package controller

import (
	"context"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/wait"
)

// upTime counts the time in which agents can be heard: this head runs, and the store has a leader. After a time without, it
// stands still for as long again, at most for retell: what has happened meanwhile is only being told.
type upTime struct {
	led  func() bool // whether the store has a leader
	mu   sync.Mutex
	sum  time.Duration // guarded by mu, as all that follows; counted up to the last look
	last time.Time     // of the looks
	owed time.Duration // how long it stands still yet
	runs bool          // it counts since the last look
}

const (
	lookEvery = time.Second
	retell    = 30 * time.Second // more than agents leave between two tries
)

func newUpTime(led func() bool) *upTime {
	return &upTime{led: led, last: time.Now(), runs: true}
}

// run looks again and again until ctx ends.
func (u *upTime) run(ctx context.Context) {
	for ; ctx.Err() == nil; _ = wait.Sleep(ctx, lookEvery) {
		u.look(time.Now())
	}
}

// now is the time counted so far, and whether it goes on.
func (u *upTime) now() (time.Duration, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sum + u.fresh(time.Since(u.last)), u.runs
}

// fresh is what counts of a time since the last look: no more than there should be between two, since a process that was
// stopped heard nobody. mu is held.
func (u *upTime) fresh(since time.Duration) time.Duration {
	if !u.runs {
		return 0
	}
	return min(since, 2*lookEvery)
}

func (u *upTime) look(now time.Time) {
	led := u.led()
	u.mu.Lock()
	defer u.mu.Unlock()
	since := now.Sub(u.last)
	u.sum += u.fresh(since)
	u.last = now
	if !led || since > 2*lookEvery {
		u.owed = min(u.owed+since, retell)
	} else {
		u.owed = max(u.owed-since, 0)
	}
	u.runs = led && u.owed == 0
}
