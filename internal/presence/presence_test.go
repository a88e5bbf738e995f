package presence_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet/internal/presence"
)

const period = 5 * time.Second

// exchange merges what one head heard into the tracker of another, as heads do each period.
func exchange(t *testing.T, to, of *presence.Tracker, name string) {
	t.Helper()
	now := time.Now()
	to.Merge(name, now, of.Recent(now.Sub(to.ReportedUntil(name))+time.Second))
}

func mustBeSilent(t *testing.T, p *presence.Tracker, want time.Duration) {
	t.Helper()
	if got := p.Silence("m1", 1); got != want {
		t.Errorf("silent for %s, want %s", got, want)
	}
}

// An agent is not silent for a head that never received its heartbeats while another head receives them.
func TestSilenceIsJudgedJointly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := presence.New(), presence.New()
		a.SetPeers([]string{"b"}, period)
		for range 20 {
			b.Record("m1", 1, nil)
			time.Sleep(period)
			exchange(t, a, b, "b")
			mustBeSilent(t, a, period)
		}
		time.Sleep(period)
		mustBeSilent(t, a, period) // what b heard since is not known
		exchange(t, a, b, "b")
		mustBeSilent(t, a, 2*period)
	})
}

// Heartbeats are forwarded: a head gets those of a head that it cannot reach from a third one.
func TestHeartbeatsAreForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := presence.New(), presence.New(), presence.New()
		a.SetPeers([]string{"b", "c"}, period)
		b.SetPeers([]string{"a", "c"}, period)
		for range 20 {
			c.Record("m1", 1, nil)
			time.Sleep(period)
			exchange(t, b, c, "c")
			exchange(t, a, b, "b")
			if s := a.Silence("m1", 1); s > 2*period {
				t.Errorf("silent for %s", s)
			}
		}
	})
}

// After a head is lost, the agents that it heard have the full timeout to find another one.
func TestAgentsOfLostHeadGetFullTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := presence.New(), presence.New()
		a.SetPeers([]string{"b"}, period)
		time.Sleep(time.Hour)
		exchange(t, a, b, "b")
		b.Record("m1", 1, nil) // then b fails
		time.Sleep(2 * period)
		mustBeSilent(t, a, 0)
		time.Sleep(45 * time.Second)
		mustBeSilent(t, a, 45*time.Second)
		a.Record("m1", 1, nil)
		mustBeSilent(t, a, 0)
		a.SetPeers(nil, period) // b was removed
		time.Sleep(period)
		mustBeSilent(t, a, period)
	})
}

// A heartbeat of another epoch is ignored, and so is an older one.
func TestHeartbeatOfOtherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := presence.New()
		mustBeSilent(t, p, 0)
		time.Sleep(period)
		p.Record("m1", 2, nil)
		mustBeSilent(t, p, period)
		p.Merge("b", time.Now(), []presence.Heartbeat{{Machine: "m1", Epoch: 1}, {Machine: "m1", Epoch: 2, Age: 60000}})
		if got := p.Silence("m1", 2); got != 0 {
			t.Errorf("silent for %s", got)
		}
	})
}

// An agent to which another head has just granted a run is not silent, however long this head has run.
func TestGrantByOtherHeadIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := presence.New()
		p.SetPeers([]string{"b"}, period)
		time.Sleep(time.Hour)
		p.Merge("b", time.Now(), nil)
		mustBeSilent(t, p, 0)
		time.Sleep(period)
		p.Merge("b", time.Now(), nil)
		mustBeSilent(t, p, period)
	})
}
