package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

var errAway = errors.New("away")

// site is a set of heads that only monitors probe.
type site struct {
	began time.Time
	mu    sync.Mutex
	away  map[string]bool            // guarded by mu
	asked map[string][]time.Duration // guarded by mu; since the site was created
}

func newSite() *site {
	return &site{away: map[string]bool{}, asked: map[string][]time.Duration{}, began: time.Now()}
}

func (s *site) probe(_ context.Context, url string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[url] = append(s.asked[url], time.Since(s.began))
	if s.away[url] {
		return errAway
	}
	return nil
}

func (s *site) set(url string, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away[url] = away
}

func (s *site) probes(url string) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[url]
}

func firstOf(hs *heads) string {
	likely, down, _ := hs.round()
	return append(likely, down...)[0]
}

// A failed head has one monitor, whose delay doubles up to a bound, however many calls fail.
func TestOneMonitorWithADoublingDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		hs := newHeads([]string{"a", "b"}, s.probe)
		defer hs.close()
		s.set("a", true)
		for range 50 {
			hs.failed("a", HeadDown, errAway)
		}
		hs.served("b", true)
		time.Sleep(time.Minute)
		synctest.Wait()
		asked, last, delay := s.probes("a"), time.Duration(0), monitorMin
		for i, at := range asked {
			if gap := at - last; gap < delay/2 || gap > delay*3/2 {
				t.Errorf("probe %d came after %s; want about %s", i, gap, delay)
			}
			last, delay = at, min(2*delay, monitorMax)
		}
		if len(asked) < 9 || len(s.probes("b")) != 0 {
			t.Errorf("probes: %v", asked)
		}
		if firstOf(hs) != "b" {
			t.Error("a head that is down is tried first")
		}
		s.set("a", false)
		time.Sleep(2 * monitorMax)
		synctest.Wait()
		n := len(s.probes("a"))
		if firstOf(hs) != "a" {
			t.Error("a head that is back does not have its rank again")
		}
		time.Sleep(time.Hour)
		if len(s.probes("a")) != n {
			t.Error("a head that is up is still probed")
		}
	})
}

// Calls that wait for a response share a probe of the head: each of its own would be a connection more for a head that
// is busy already. A head that responds to it, were it by an error, keeps the calls; one that does not is left.
func TestProbeOfWaitingCalls(t *testing.T) {
	const calls = 1000
	for _, test := range []struct {
		name   string
		result error
		left   int
	}{
		{"ready", nil, 0},
		{"busy", &trivet.Problem{Code: trivet.CodeInternal}, 0},
		{"stopped", errSilent, calls},
	} {
		synctest.Test(t, func(t *testing.T) {
			var probes, left atomic.Int32
			c := &Client{token: "token", heads: newHeads([]string{"a"}, func(context.Context, string) error {
				probes.Add(1)
				time.Sleep(probeTimeout / 2)
				return test.result
			})}
			defer c.heads.close()
			for range calls {
				end := c.probeStopped(t.Context(), "a", time.Minute, func(error) { left.Add(1) })
				defer end()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if probes.Load() != 1 || int(left.Load()) != test.left {
				t.Errorf("%s: %d probes, %d of %d calls left the head", test.name, probes.Load(), left.Load(), calls)
			}
		})
	}
}

// A call that has its response does not probe, and one that ends leaves the probe to the others.
func TestProbeOfCallThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes, left atomic.Int32
		c := &Client{token: "token", heads: newHeads([]string{"a"}, func(context.Context, string) error {
			probes.Add(1)
			time.Sleep(probeTimeout / 2)
			return errSilent
		})}
		defer c.heads.close()
		leave := func(error) { left.Add(1) }
		c.probeStopped(t.Context(), "a", time.Minute, leave)()
		ends := c.probeStopped(t.Context(), "a", time.Minute, leave)
		defer c.probeStopped(t.Context(), "a", time.Minute, leave)()
		time.Sleep(probeAfter + probeTimeout/4)
		ends()
		time.Sleep(time.Minute)
		synctest.Wait()
		if probes.Load() != 1 || left.Load() != 1 {
			t.Errorf("%d probes, %d calls left the head", probes.Load(), left.Load())
		}
	})
}

// A waiting call is woken by the monitor that reaches a head.
func TestWaitingCallIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		hs := newHeads([]string{"a"}, s.probe)
		defer hs.close()
		hs.failed("a", HeadDown, errAway)
		if err := wait(t.Context(), time.Hour, hs.awaitUp()); err != nil || time.Since(s.began) > monitorMin*2 {
			t.Errorf("%v after %s", err, time.Since(s.began))
		}
	})
}

// Close stops every monitor, even during a probe.
func TestCloseEndsMonitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asks atomic.Bool
		hs := newHeads([]string{"a", "b"}, func(ctx context.Context, _ string) error {
			asks.Store(true)
			<-ctx.Done()
			return ctx.Err()
		})
		hs.failed("a", HeadDown, errAway)
		time.Sleep(time.Second)
		hs.failed("b", HeadDown, errAway)
		hs.close()
		hs.failed("a", HeadDown, errAway)
		time.Sleep(time.Hour)
		if !asks.Load() {
			t.Error("no monitor sent a probe")
		}
	})
}

// Many clients spread evenly from their first call on, and probe no head while theirs serves; those that lose a head
// spread over all others, and return when it is back.
func TestClientsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 900
		s := newSite()
		urls := []string{"https://10.0.0.1:7480", "https://10.0.0.2:7480", "https://10.0.0.3:7480"}
		var all []*heads
		for i := range n {
			hs := newHeads(urls, s.probe)
			defer hs.close()
			hs.spreadBy(fmt.Sprintf("machine-%d", i))
			hs.served(firstOf(hs), true)
			all = append(all, hs)
		}
		where := func() (on []string, count map[string]int) {
			count = map[string]int{}
			for _, hs := range all {
				on = append(on, firstOf(hs))
				count[firstOf(hs)]++
			}
			return on, count
		}
		even := func(count map[string]int, over int) {
			t.Helper()
			for url, k := range count {
				if k < n/over*8/10 || k > n/over*12/10 || len(count) != over {
					t.Errorf("%s has %d of %d: %v", url, k, n, count)
				}
			}
		}
		before, count := where()
		even(count, 3)
		time.Sleep(2 * monitorMinSpread)
		synctest.Wait()
		if after, _ := where(); !slices.Equal(before, after) {
			t.Error("they moved, though each is at its first choice")
		}
		for _, url := range urls {
			if n := len(s.probes(url)); n > 0 {
				t.Errorf("%s was probed %d times, though all heads serve", url, n)
			}
		}
		s.set(urls[1], true)
		for i, hs := range all {
			if before[i] == urls[1] {
				hs.failed(urls[1], HeadDown, errAway)
			}
		}
		_, count = where()
		even(count, 2)
		s.set(urls[1], false)
		time.Sleep(2 * monitorMinSpread)
		synctest.Wait()
		after, _ := where()
		if !slices.Equal(before, after) {
			t.Error("they did not return to their heads")
		}
	})
}

// Configured heads are tried first; learned ones once they responded to a probe, or when no other is left.
func TestLearnedHeadsAreAdditional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		hs := newHeads([]string{"https://lb"}, s.probe)
		defer hs.close()
		round := func() string {
			likely, down, far := hs.round()
			return strings.Join(slices.Concat(likely, []string{"|"}, down, []string{"|"}, far), " ")
		}
		var got []string
		note := func() { got = append(got, round()) }
		s.set("https://b", true)
		hs.learn("https://a,https://b")
		note()
		hs.served("https://lb", false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		note()
		hs.failed("https://lb", HeadUnready, errAway)
		note()
		hs.learn("")
		hs.learn("ftp://x")
		note()
		hs.failed("https://a", HeadDown, errAway)
		note()
		hs.learn("https://c")
		note()
		if diff := cmp.Diff([]string{
			"https://lb | | https://a https://b",
			"https://lb https://a | | https://b",
			"https://a https://lb | | https://b",
			"https://a https://lb | | https://b",
			"https://lb | https://a | https://b",
			"https://lb | | https://c",
		}, got); diff != "" {
			t.Error(diff)
		}
		for _, u := range []string{"https://a", "https://b"} {
			n := len(s.probes(u))
			time.Sleep(time.Minute)
			if len(s.probes(u)) != n {
				t.Errorf("%s is probed, though it was removed", u)
			}
		}
	})
}

// A head that serves only reads stays ranked behind those that accept writes.
func TestReadOnlyHeadIsTriedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		hs := newHeads([]string{"a", "b"}, s.probe)
		defer hs.close()
		hs.failed("a", HeadUnready, errAway)
		hs.served("a", false)
		if firstOf(hs) != "b" {
			t.Error("it is tried first")
		}
		hs.served("a", true)
		if firstOf(hs) != "a" {
			t.Error("it accepted a write and is not tried first")
		}
	})
}
