package heads_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet/internal/testhead"
)

// A leader that is killed is replaced by one election, which both others begin because its process has ended: by
// heartbeats every 2 s they would miss it after 12 s.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	slow := []string{"--heartbeat", "2s"}
	all, l := threeWith(t, slow...)
	for range 3 {
		leader, others := leaderAmong(all)
		term := leader.metric("trivet_store_term")
		var before []float64
		for _, h := range others {
			before = append(before, h.metric("trivet_store_successions_total"))
		}
		leader.Kill()
		l.write()
		for i, h := range others {
			h.awaitMetric("trivet_store_term", term+1)
			if got := h.metric("trivet_store_successions_total"); got != before[i]+1 {
				t.Errorf("%s: %v successions after %v", h.Name, got, before[i])
			}
		}
		leader.Up(slow...)
		l.write()
	}
	for _, h := range all {
		l.read(h.client(h))
	}
}

// A leader that is paused still has its connections, and its kernel accepts others: it is replaced as its heartbeats
// are missed, and not because its process has ended.
func TestLeaderIsPaused(t *testing.T) {
	t.Parallel()
	all, l := threeWith(t)
	leader, others := leaderAmong(all)
	l.cl = others[0].client(others...)
	leader.Signal(syscall.SIGSTOP)
	l.write()
	leader.Signal(syscall.SIGCONT)
	l.cl = others[0].client(leader)
	l.write()
	for _, h := range all {
		if n := h.metric("trivet_store_successions_total"); n != 0 {
			t.Errorf("%s: %v successions", h.Name, n)
		}
		l.read(h.client(h))
	}
}

// A first start waits for its own election, which takes longer with longer heartbeats.
func TestFirstStartWithLongHeartbeats(t *testing.T) {
	t.Parallel()
	newHead(t, "head0").Up("--heartbeat", "5s")
}

// threeWith starts three heads with these flags, and a ledger that writes by all of them.
func threeWith(t *testing.T, flags ...string) (all []*head, l *ledger) {
	t.Helper()
	h0 := newHead(t, "head0")
	h0.Up(flags...)
	all = []*head{h0}
	for _, name := range []string{"head1", "head2"} {
		h := newHead(t, name)
		h.Up(append([]string{"--join", h0.API(), "--token", h0.token()}, flags...)...)
		h0.awaitMember(name)
		all = append(all, h)
	}
	return all, newLedger(t, h0.client(all...))
}

// leaderAmong waits until all heads are connected and in one term, and returns the leader and the others.
func leaderAmong(all []*head) (leader *head, others []*head) {
	all[0].Helper()
	for _, h := range all {
		h.awaitMetric("trivet_store_streams", 4)
	}
	all[0].Await("a leader", func() error {
		at := slices.IndexFunc(all, func(h *head) bool { return h.metric("trivet_store_leader") == 1 })
		if at < 0 {
			return errors.New("no head leads")
		}
		leader, others = all[at], slices.Delete(slices.Clone(all), at, at+1)
		return nil
	})
	for _, h := range others {
		h.awaitMetric("trivet_store_term", leader.metric("trivet_store_term"))
	}
	return leader, others
}

// awaitMetric waits until a metric has a value.
func (h *head) awaitMetric(name string, want float64) {
	h.Helper()
	h.Await(fmt.Sprintf("%s is %v", name, want), func() error {
		if got := h.metric(name); got != want {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

// metric returns the value of a metric without labels.
func (h *head) metric(name string) (value float64) {
	h.Helper()
	h.Await("metrics", func() error {
		req := must(http.NewRequestWithContext(h.Context(), http.MethodGet, h.API()+"/metrics", nil))(h.T)
		req.Header.Set("Authorization", "Bearer "+h.Credential().Token)
		resp, err := testhead.Unverified.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s, %w", resp.Status, err)
		}
		_, after, found := strings.Cut(string(text), "\n"+name+" ")
		if !found {
			return fmt.Errorf("there is no %s", name)
		}
		number, _, _ := strings.Cut(after, "\n")
		value, err = strconv.ParseFloat(number, 64)
		return err
	})
	return value
}
