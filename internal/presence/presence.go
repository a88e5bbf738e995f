// Package presence tracks when each agent was last heard, by this head or by another one, and for how long an agent
// has been silent. It is in memory only.
package presence

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/uptime"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Tracker knows when each agent was last heard, by this head's clock. After a start no agent has been heard, and
// silence is counted from the first query.
//
// An agent talks to any head. So silence is judged by what all heads heard: see [uptime.Silence].
type Tracker struct {
	clock   *Clock
	timeout func() time.Duration
	mu      sync.Mutex
	last    map[string]heartbeat     // guarded by mu; by machine
	peers   map[string]time.Duration // guarded by mu; by head: until when it has reported
	awaited map[string]heartbeat     // guarded by mu; by machine: an epoch never heard, and the time of the first query
	learned learned                  // guarded by mu
	expired time.Duration            // guarded by mu: when awaited was last searched for old ones
}

type heartbeat struct {
	epoch    int64
	at       time.Duration // by the clock
	seq      int64         // in the order in which this head learned of heartbeats
	from     string        // the head that it was learned from; empty: the agent itself
	progress *trivet.Progress
}

// Heartbeat is one agent's last heartbeat as heads exchange it.
type Heartbeat struct {
	Machine  string           `json:"machine"`
	Epoch    int64            `json:"epoch"`
	Age      int64            `json:"age"` // in milliseconds
	Progress *trivet.Progress `json:"progress,omitempty"`
}

// New returns a tracker without heartbeats. timeout returns the silence from which on an agent is lost.
func New(clock *Clock, timeout func() time.Duration) *Tracker {
	return &Tracker{clock: clock, timeout: timeout, last: map[string]heartbeat{}, peers: map[string]time.Duration{},
		awaited: map[string]heartbeat{}, learned: learned{start: rand.Text()}}
}

// Listening returns nil while agents may use this head. One that has had no leader for longer than a heartbeat may be
// cut off from the other heads, which would declare its agents lost: agents must find another head.
func (t *Tracker) Listening() error {
	since, c := workflow.HeartbeatInterval(trivet.Duration(t.timeout())), t.clock.Read()
	if c.Leaderless() <= since.D() {
		return nil
	}
	return fmt.Errorf("%w: this head has had no quorum for %s", trivet.ErrUnavailable,
		c.Leaderless().Round(time.Second))
}

// Record records a heartbeat of the agent that holds this epoch of the machine.
func (t *Tracker) Record(machine string, epoch int64, progress *trivet.Progress) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.record(machine, heartbeat{epoch: epoch, at: now, progress: progress})
}

// record records a heartbeat that is newer than the last one. Those of other heads come back from them, a little older:
// they are not news, or heads would exchange them forever. t.mu is held.
func (t *Tracker) record(machine string, h heartbeat) {
	old, ok := t.last[machine]
	if ok && (old.epoch > h.epoch || old.epoch == h.epoch && (old.at > h.at || old.at == h.at && h.from != "")) {
		return
	}
	h.seq = t.learned.add(machine)
	t.last[machine] = h
	t.learned.compact(t.last)
}

func (t *Tracker) now() time.Duration {
	c := t.clock.Read()
	return c.Counted()
}

// period is how often heads exchange heartbeats: several times within the timeout.
func (t *Tracker) period() time.Duration { return t.timeout() / 8 }

// setPeers sets the other heads that agents talk to. A new one counts as having reported until now.
func (t *Tracker) setPeers(urls map[string]string) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	peers := map[string]time.Duration{}
	for name := range urls {
		until, ok := t.peers[name]
		if !ok {
			until = now
		}
		peers[name] = until
	}
	t.peers = peers
}

// merge adds a page of what a peer reported in response to a request that was sent at the time asked. With the last page
// the peer has reported until then.
func (t *Tracker) merge(head string, asked time.Duration, p page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range p.Heartbeats {
		at := asked - time.Duration(max(h.Age, 0))*time.Millisecond
		t.record(h.Machine, heartbeat{epoch: h.Epoch, at: at, from: head, progress: h.Progress})
	}
	if until, ok := t.peers[head]; ok && until < asked && !p.More {
		t.peers[head] = asked
	}
}

// Silence returns for how long it is known that no head heard the agent of this epoch. For an epoch that was never
// heard it counts from the first query, since another head may have just granted it.
func (t *Tracker) Silence(machine string, epoch int64) time.Duration {
	now, lostAfter := t.now(), 2*t.period()
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.last[machine]
	if !ok || h.epoch != epoch {
		h = t.await(machine, epoch, now)
	}
	reported := make([]time.Duration, 0, len(t.peers))
	for _, until := range t.peers {
		reported = append(reported, until)
	}
	return uptime.Silence(h.at, now, reported, lostAfter)
}

// await returns the time of the first query about an epoch. t.mu is held.
func (t *Tracker) await(machine string, epoch int64, now time.Duration) heartbeat {
	h, ok := t.awaited[machine]
	if !ok || h.epoch != epoch {
		h = heartbeat{epoch: epoch, at: now}
		t.awaited[machine] = h
	}
	return h
}

// Up reports whether the agent of this epoch is not lost, as far as this head knows: silence is all that proves it.
func (t *Tracker) Up(machine string, epoch int64) bool {
	return t.Silence(machine, epoch) < t.timeout()
}

// Heard reports whether this head has heard the agent of this epoch.
func (t *Tracker) Heard(machine string, epoch int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.last[machine]
	return ok && h.epoch == epoch
}

// Progress returns how far the machine's running action was at the last heartbeat; nil where that is not known.
func (t *Tracker) Progress(machine string) *trivet.Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[machine].progress
}
