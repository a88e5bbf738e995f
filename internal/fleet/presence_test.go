package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet/internal/fleet"
)

const period = 5 * time.Second

// ask lets one head learn what another has heard, as heads do each period.
func ask(t *testing.T, to, of *fleet.Presence, name string) {
	t.Helper()
	now := time.Now()
	to.Learn(name, now, of.Words(now.Sub(to.Told(name))+time.Second))
}

func mustBeSilent(t *testing.T, p *fleet.Presence, want time.Duration) {
	t.Helper()
	if got := p.Silence("m1", 1); got != want {
		t.Errorf("silent for %s, want %s", got, want)
	}
}

// A head that never heard an agent does not hold it for silent while another one hears it.
func TestSilenceIsJudgedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fleet.NewPresence(), fleet.NewPresence()
		a.Expect([]string{"b"}, period)
		for range 20 {
			b.Heard("m1", 1, nil)
			time.Sleep(period)
			ask(t, a, b, "b")
			mustBeSilent(t, a, period)
		}
		time.Sleep(period)
		mustBeSilent(t, a, period) // what b heard since is not known
		ask(t, a, b, "b")
		mustBeSilent(t, a, 2*period)
	})
}

// Words go on: a head learns by a second one what a third has heard, which it does not reach.
func TestWordsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := fleet.NewPresence(), fleet.NewPresence(), fleet.NewPresence()
		a.Expect([]string{"b", "c"}, period)
		b.Expect([]string{"a", "c"}, period)
		for range 20 {
			c.Heard("m1", 1, nil)
			time.Sleep(period)
			ask(t, b, c, "c")
			ask(t, a, b, "b")
			if s := a.Silence("m1", 1); s > 2*period {
				t.Errorf("silent for %s", s)
			}
		}
	})
}

// From when a head is lost, the agents that it heard have their full time to find another one.
func TestALostHeadsAgentsHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fleet.NewPresence(), fleet.NewPresence()
		a.Expect([]string{"b"}, period)
		time.Sleep(time.Hour)
		ask(t, a, b, "b")
		b.Heard("m1", 1, nil) // and dies
		time.Sleep(2 * period)
		mustBeSilent(t, a, 0)
		time.Sleep(45 * time.Second)
		mustBeSilent(t, a, 45*time.Second)
		a.Heard("m1", 1, nil)
		mustBeSilent(t, a, 0)
		a.Expect(nil, period) // b was removed
		time.Sleep(period)
		mustBeSilent(t, a, period)
	})
}

// What was heard under another epoch says nothing, and an older word changes nothing.
func TestWordsOfAnotherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fleet.NewPresence()
		mustBeSilent(t, p, 0)
		time.Sleep(period)
		p.Heard("m1", 2, nil)
		mustBeSilent(t, p, period)
		p.Learn("b", time.Now(), []fleet.Word{{Machine: "m1", Epoch: 1}, {Machine: "m1", Epoch: 2, Ago: 60000}})
		if got := p.Silence("m1", 2); got != 0 {
			t.Errorf("silent for %s", got)
		}
	})
}

// An agent that another head has granted a run a moment ago is not silent, however long this head has run.
func TestAGrantOfAnotherHeadIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fleet.NewPresence()
		p.Expect([]string{"b"}, period)
		time.Sleep(time.Hour)
		p.Learn("b", time.Now(), nil)
		mustBeSilent(t, p, 0)
		time.Sleep(period)
		p.Learn("b", time.Now(), nil)
		mustBeSilent(t, p, period)
	})
}
