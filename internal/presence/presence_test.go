package presence

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
)

const (
	timeout = 40 * time.Second
	period  = timeout / 8
)

// head is a head's tracker, and what happens to the head.
type head struct {
	*testing.T
	*Tracker
	Exchange
	name   string
	cutOff bool
}

// newHead returns a head whose clock runs until the test ends.
func newHead(t *testing.T, peers ...string) *head {
	h := &head{T: t, name: "self"}
	h.Tracker = New(NewClock(func() bool { return !h.cutOff }), func() time.Duration { return timeout })
	urls := map[string]string{}
	for _, name := range peers {
		urls[name] = "https://" + name
	}
	h.setPeers(urls)
	return h
}

// pass lets time pass at heads that run.
func pass(d time.Duration, heads ...*head) {
	for range d / time.Second {
		time.Sleep(time.Second)
		for _, h := range heads {
			h.clock.Read()
		}
	}
}

// ask merges what another head learned since the last time, as heads do each period, and returns the pages.
func (h *head) ask(of *head, name string) (pages []page) {
	for more := true; more; {
		p := of.since(h.next(name), h.name)
		pages = append(pages, p)
		h.merge(name, h.now(), p)
		more = h.received(name, p)
	}
	return pages
}

func (h *head) mustBeSilent(want time.Duration) {
	h.Helper()
	if got := h.Silence("m1", 1); got != want {
		h.Errorf("silent for %s, want %s", got, want)
	}
	if h.Up("m1", 1) != (want < timeout) {
		h.Errorf("after %s of silence it is up: %t", want, want >= timeout)
	}
}

// An agent is not silent for a head that never received its heartbeats while another head receives them.
func TestSilenceIsJudgedJointly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newHead(t, "b"), newHead(t, "a")
		for range 20 {
			b.Record("m1", 1, nil)
			pass(period, a, b)
			a.ask(b, "b")
			a.mustBeSilent(period)
		}
		pass(period, a, b)
		a.mustBeSilent(period) // what b heard since is not known
		a.ask(b, "b")
		a.mustBeSilent(2 * period)
	})
}

// Heartbeats are forwarded: a head gets those of a head that it cannot reach from a third one.
func TestHeartbeatsAreForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := newHead(t, "b", "c"), newHead(t, "a", "c"), newHead(t, "a", "b")
		for range 20 {
			c.Record("m1", 1, nil)
			pass(period, a, b, c)
			b.ask(c, "c")
			a.ask(b, "b")
			if s := a.Silence("m1", 1); s > 2*period {
				t.Errorf("silent for %s", s)
			}
		}
	})
}

// After a head is lost, the agents that it heard have the full timeout to find another one.
func TestAgentsOfLostHeadGetFullTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newHead(t, "b"), newHead(t, "a")
		pass(time.Hour, a, b)
		a.ask(b, "b")
		b.Record("m1", 1, nil) // then b fails
		pass(2*period, a)
		a.mustBeSilent(0)
		pass(45*time.Second, a)
		a.mustBeSilent(45 * time.Second)
		a.Record("m1", 1, nil)
		a.mustBeSilent(0)
		a.setPeers(nil) // b was removed
		pass(period, a)
		a.mustBeSilent(period)
	})
}

// A heartbeat of another epoch is ignored, and so is an older one.
func TestHeartbeatOfOtherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead(t)
		h.mustBeSilent(0)
		pass(period, h)
		h.Record("m1", 2, nil)
		h.mustBeSilent(period)
		h.merge("b", h.now(), page{Heartbeats: []Heartbeat{{Machine: "m1", Epoch: 1},
			{Machine: "m1", Epoch: 2, Age: 60000}}})
		if got := h.Silence("m1", 2); got != 0 {
			t.Errorf("silent for %s", got)
		}
	})
}

// An agent to which another head has just granted a run is not silent, however long this head has run.
func TestGrantByOtherHeadIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead(t, "b")
		pass(time.Hour, h)
		h.merge("b", h.now(), page{})
		h.mustBeSilent(0)
		pass(period, h)
		h.merge("b", h.now(), page{})
		h.mustBeSilent(period)
	})
}

// A head that was stopped does not take its own pause for silence: not of an agent that it heard, nor of one that
// another head receives. The time in which agents find out that it is back does not count either.
func TestPauseIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newHead(t, "b"), newHead(t, "a")
		a.Record("m1", 1, nil)
		b.Record("m2", 1, nil)
		pass(period, a, b)
		a.ask(b, "b")
		pass(10*time.Minute, b) // a is stopped
		a.mustBeSilent(period)
		pass(30*time.Second, a, b)
		a.mustBeSilent(period)
		if got := a.Silence("m2", 1); got != period {
			t.Errorf("an agent of the other head was silent for %s", got)
		}
		a.ask(b, "b")
		pass(period, a, b)
		a.ask(b, "b")
		a.mustBeSilent(2 * period)
	})
}

// A head without a quorum refuses agents after a heartbeat, and counts no silence meanwhile. When it has a quorum
// again, it is used again.
func TestHeadWithoutQuorumIsNotListening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHead(t)
		h.Record("m1", 1, nil)
		pass(period, h)
		h.cutOff = true
		pass(timeout/4, h)
		if err := h.Listening(); err != nil {
			t.Errorf("after one heartbeat: %v", err)
		}
		pass(time.Second, h)
		if err := h.Listening(); !errors.Is(err, trivet.ErrUnavailable) {
			t.Errorf("after more than a heartbeat: %v", err)
		}
		pass(time.Hour, h)
		h.mustBeSilent(period)
		h.cutOff = false
		if err := h.Listening(); err != nil {
			t.Errorf("with a quorum again: %v", err)
		}
		pass(30*time.Second, h) // its agents return
		h.mustBeSilent(period)
	})
}
