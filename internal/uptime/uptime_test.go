package uptime_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet/internal/uptime"
)

// stretch is some time of a head's life.
type stretch struct {
	what       string
	time       time.Duration
	leaderless bool
	paused     bool // nothing advances the clock
	counts     time.Duration
}

// live advances a clock over a stretch, as a head does.
func live(c *uptime.Clock, now *time.Time, s stretch) (counted time.Duration) {
	before, step := c.Counted(), uptime.Interval
	if s.paused {
		step = s.time
	}
	for end := now.Add(s.time); now.Before(end); {
		*now = now.Add(step)
		c.Advance(*now, !s.leaderless)
	}
	return c.Counted() - before
}

// Time counts while agents can be heard. The time after a gap, in which they report what happened meanwhile, does not
// count.
func TestClock(t *testing.T) {
	var c uptime.Clock
	now := time.Unix(1, 0)
	c.Advance(now, true)
	for _, s := range []stretch{
		{what: "all is well", time: time.Minute, counts: time.Minute},
		{what: "no leader", time: 15 * time.Minute, leaderless: true},
		{what: "agents return", time: uptime.MaxSettle + uptime.Interval},
		{what: "all is well again", time: time.Minute, counts: time.Minute},
		{what: "an election", time: 3 * time.Second, leaderless: true},
		{what: "a short gap costs little", time: 10 * time.Second, counts: 5 * time.Second},
		{what: "stopped", time: time.Hour, paused: true},
		{what: "agents return", time: uptime.MaxSettle},
		{what: "all is well", time: time.Minute, counts: time.Minute},
		{what: "stopped without a leader", time: time.Hour, paused: true, leaderless: true},
		{what: "agents return", time: uptime.MaxSettle + uptime.Interval},
		{what: "all is well", time: time.Minute, counts: time.Minute},
	} {
		if got := live(&c, &now, s); got != s.counts {
			t.Errorf("%s: of %s, %s are counted, want %s", s.what, s.time, got, s.counts)
		}
		if want := map[bool]time.Duration{true: s.time}[s.leaderless]; c.Leaderless() != want {
			t.Errorf("%s: leaderless for %s, want %s", s.what, c.Leaderless(), want)
		}
	}
}

// Whatever happens to a head, its clock counts no more than the time in which it ran and had a leader, and after
// MaxSettle without a gap it counts.
func TestClockCountsNoGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c uptime.Clock
		now := time.Unix(1, 0)
		c.Advance(now, true)
		var most time.Duration
		for range rapid.IntRange(1, 20).Draw(t, "stretches") {
			s := stretch{time: uptime.Interval * time.Duration(rapid.IntRange(3, 100).Draw(t, "seconds")),
				leaderless: rapid.Bool().Draw(t, "leaderless"), paused: rapid.Bool().Draw(t, "paused")}
			if !s.leaderless && !s.paused {
				most += s.time
			}
			missed, begin := c.Missed(), now
			if got := live(&c, &now, s); got < 0 || c.Counted() > most || got+c.Missed()-missed != now.Sub(begin) {
				t.Fatalf("%s are counted of at most %s after %+v", c.Counted(), most, s)
			}
			if (s.leaderless || s.paused) && c.Counting() {
				t.Fatalf("time counts after %+v", s)
			}
		}
		live(&c, &now, stretch{time: uptime.MaxSettle + uptime.Interval})
		if !c.Counting() {
			t.Fatal("time does not count again")
		}
	})
}

// The time in which a wait is queued is not used.
func TestTimer(t *testing.T) {
	timer := uptime.StartTimer(10*time.Second, time.Hour)
	for _, at := range []struct {
		after  time.Duration
		queued bool
		used   time.Duration
	}{{0, true, 10}, {60, true, 10}, {61, false, 10}, {70, false, 19}, {71, true, 20}, {99, false, 20}} {
		got := timer.Advance(time.Hour+at.after*time.Second, at.queued)
		if want := at.used * time.Second; got != want {
			t.Errorf("after %d s, %s are used, want %s", at.after, got, want)
		}
	}
}

// Silence is judged by what all heads heard.
func TestSilence(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		heard, now time.Duration
		reported   []time.Duration
		want       time.Duration
	}{
		"one head":                    {heard: 10 * s, now: 60 * s, want: 50 * s},
		"just heard":                  {heard: 60 * s, now: 60 * s, want: 0},
		"up to the last report":       {heard: 10 * s, now: 60 * s, reported: []time.Duration{58 * s, 52 * s}, want: 42 * s},
		"heard after the last report": {heard: 59 * s, now: 60 * s, reported: []time.Duration{55 * s}, want: 0},
		"from when a head was lost":   {heard: 10 * s, now: 60 * s, reported: []time.Duration{30 * s}, want: 20 * s},
		"heard after a head was lost": {heard: 50 * s, now: 60 * s, reported: []time.Duration{30 * s}, want: 10 * s},
		"one lost, another behind":    {heard: 0, now: 60 * s, reported: []time.Duration{30 * s, 55 * s}, want: 15 * s},
	} {
		if got := uptime.Silence(tc.heard, tc.now, tc.reported, 10*s); got != tc.want {
			t.Errorf("%s: silent for %s, want %s", name, got, tc.want)
		}
	}
}
