// Package presence tracks when each agent was last heard, by this head or by another one, and for how long an agent
// has been silent. It is in memory only.
package presence

import (
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Tracker knows when each agent was last heard, by the monotonic clock. After a start no agent has been heard, and
// silence is counted from the first query.
//
// An agent talks to any head. So silence is counted only up to the time until which all other heads have reported
// what they heard; and, where one of these was lost, only from the time of its loss, since its agents need time to
// find another head.
type Tracker struct {
	mu      sync.Mutex
	last    map[string]heartbeat // guarded by mu; by machine
	peers   map[string]time.Time // guarded by mu; by head: until when it has reported
	period  time.Duration        // guarded by mu; how often peers report
	awaited map[string]heartbeat // guarded by mu; by machine: an epoch never heard, and the time of the first query
}

type heartbeat struct {
	epoch    int64
	at       time.Time
	learned  time.Time // when this head learned of it
	progress *trivet.Progress
}

// Heartbeat is one agent's last heartbeat as heads exchange it.
type Heartbeat struct {
	Machine  string           `json:"machine"`
	Epoch    int64            `json:"epoch"`
	Age      int64            `json:"age"` // in milliseconds
	Progress *trivet.Progress `json:"progress,omitempty"`
}

// New returns a tracker without heartbeats.
func New() *Tracker {
	return &Tracker{last: map[string]heartbeat{}, peers: map[string]time.Time{}, awaited: map[string]heartbeat{}}
}

// Record records a heartbeat of the agent that holds this epoch of the machine.
func (t *Tracker) Record(machine string, epoch int64, progress *trivet.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.record(machine, heartbeat{epoch: epoch, at: now, learned: now, progress: progress})
}

func (t *Tracker) record(machine string, h heartbeat) {
	if old, ok := t.last[machine]; !ok || old.epoch < h.epoch || old.epoch == h.epoch && old.at.Before(h.at) {
		t.last[machine] = h
	}
}

// SetPeers sets the other heads that agents talk to, and how often they report. A new one counts as having reported
// until now.
func (t *Tracker) SetPeers(heads []string, period time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.period = period
	peers := map[string]time.Time{}
	for _, name := range heads {
		until, ok := t.peers[name]
		if !ok {
			until = time.Now()
		}
		peers[name] = until
	}
	t.peers = peers
}

// ReportedUntil returns the time until which a peer has reported what it heard.
func (t *Tracker) ReportedUntil(head string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[head]
}

// Merge adds what a peer reported in response to a request sent at the time asked.
func (t *Tracker) Merge(head string, asked time.Time, heartbeats []Heartbeat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for _, h := range heartbeats {
		at := asked.Add(-time.Duration(max(h.Age, 0)) * time.Millisecond)
		t.record(h.Machine, heartbeat{epoch: h.Epoch, at: at, learned: now, progress: h.Progress})
	}
	if until, ok := t.peers[head]; ok && until.Before(asked) {
		t.peers[head] = asked
	}
}

// keep is how long a heartbeat is of use.
const keep = time.Hour

// Recent returns the heartbeats that this head learned of within a duration, to report to a peer. It drops those that
// are too old to be of use.
func (t *Tracker) Recent(within time.Duration) []Heartbeat {
	t.mu.Lock()
	defer t.mu.Unlock()
	for machine, h := range t.awaited {
		if time.Since(h.at) > keep {
			delete(t.awaited, machine)
		}
	}
	recent := []Heartbeat{}
	for machine, h := range t.last {
		switch age := time.Since(h.at); {
		case age > keep:
			delete(t.last, machine)
		case time.Since(h.learned) <= within:
			recent = append(recent, Heartbeat{machine, h.epoch, age.Milliseconds(), h.progress})
		}
	}
	return recent
}

// Silence returns for how long it is known that no head heard the agent of this epoch. For an epoch that was never
// heard it counts from the first query, since another head may have just granted it.
func (t *Tracker) Silence(machine string, epoch int64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.last[machine]
	if !ok || h.epoch != epoch {
		h = t.await(machine, epoch)
	}
	from, until := h.at, time.Now()
	for _, reported := range t.peers {
		if lost := reported.Add(2 * t.period); time.Now().Before(lost) {
			until = earlier(until, reported)
		} else if from.Before(lost) {
			from = lost
		}
	}
	return max(0, until.Sub(from))
}

// await returns the time of the first query about an epoch. t.mu is held.
func (t *Tracker) await(machine string, epoch int64) heartbeat {
	h, ok := t.awaited[machine]
	if !ok || h.epoch != epoch {
		h = heartbeat{epoch: epoch, at: time.Now()}
		t.awaited[machine] = h
	}
	return h
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Up reports whether the agent of this epoch was heard within a duration.
func (t *Tracker) Up(machine string, epoch int64, within time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ok := t.last[machine]
	return ok && h.epoch == epoch && time.Since(h.at) < within
}

// Progress returns how far the machine's running action was at the last heartbeat; nil where that is not known.
func (t *Tracker) Progress(machine string) *trivet.Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[machine].progress
}
