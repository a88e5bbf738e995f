package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
)

// wrote sends a piece of the log of action "one" to a head, as the agent does.
func (a *agent) wrote(h *head, epoch, offset int, text string) {
	a.t.Helper()
	if status := a.writes(h, epoch, 1, offset, text); status != http.StatusNoContent {
		a.t.Fatalf("%s: %d", h.name, status)
	}
}

// writes returns the status of the response to such a piece.
func (a *agent) writes(h *head, epoch, attempt, offset int, text string) (status int) {
	a.t.Helper()
	q := url.Values{"workflow": {"p-1"}, "action": {"one"}, "epoch": {fmt.Sprint(epoch)},
		"attempt": {fmt.Sprint(attempt)}, "offset": {fmt.Sprint(offset)}}
	req := must(http.NewRequestWithContext(a.t.Context(), "POST", h.url+"/agent/v1/logs?"+q.Encode(),
		strings.NewReader(text)))(a.t)
	auth.SignRequest(req, []byte(text), "m1", a.key, h.handler.Now())
	resp := must(h.http().Do(req))(a.t)
	defer resp.Body.Close()
	return resp.StatusCode
}

// A log is only of an attempt and an epoch that the run can have.
func TestLogsOfInventedAttempts(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.claim()
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ epoch, attempt, want int }{
		{1, 1, http.StatusNoContent}, {1, 2, http.StatusUnprocessableEntity}, {1, 1000, http.StatusUnprocessableEntity},
		{1, 0, http.StatusUnprocessableEntity}, {0, 1, http.StatusUnprocessableEntity}, {2, 1, http.StatusConflict},
	} {
		if got := a.writes(a.head, c.epoch, c.attempt, 0, "x"); got != c.want {
			t.Errorf("attempt %d in epoch %d: %d, want %d", c.attempt, c.epoch, got, c.want)
		}
	}
}

// logsAt returns the log as a head serves it, and the heads that it reports as unreachable.
func (h *head) logsAt() (text string, missing [][]string) {
	h.t.Helper()
	o := client.LogOptions{Missing: func(heads []string) { missing = append(missing, heads) }}
	for p, err := range h.client(h.admin).Logs(h.t.Context(), "p-1", o) {
		if err != nil {
			h.t.Fatalf("%s: %v", h.name, err)
		}
		text += p.Text
	}
	return text, missing
}

// newRun creates three heads that know each other, and an agent with a run.
func newRun(t *testing.T) (*agent, []*head) {
	a := newAgent(t)
	all := []*head{a.head, a.twin(), a.twin()}
	for _, h := range all {
		h.introduce()
	}
	a.claim()
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if err := h.fleet.Store.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return a, all
}

// An agent that changes heads leaves a part of its log at each. Every head serves all of it, and reports unreachable
// heads.
func TestLogsOfSeveralHeads(t *testing.T) {
	t.Parallel()
	a, all := newRun(t)
	long := strings.Repeat("0123456789äöü\n", 10000)
	pieces := []string{"at the first\n", long, "at the first again\n", "and at the last\n"}
	offset, want := 0, strings.Join(pieces, "")
	for i, piece := range pieces {
		a.wrote(all[[]int{0, 1, 0, 2}[i]], 1, offset, piece)
		offset += len(piece)
	}
	a.wrote(all[2], 1, len(pieces[0]), long) // the response was lost, and it was sent again
	for _, h := range all {
		if text, missing := h.logsAt(); text != want || missing != nil {
			t.Errorf("%s serves %d bytes of %d: %.100q, and %v are missing", h.name, len(text), len(want), text,
				missing)
		}
	}

	all[0].server.Close()
	want = strings.Join([]string{pieces[1], pieces[3]}, "")
	for _, h := range all[1:] {
		if text, missing := h.logsAt(); text != want || fmt.Sprint(missing) != "[[head0]]" {
			t.Errorf("%s, without head0, serves %d bytes of %d: %.100q, and %v are missing", h.name, len(text),
				len(want), text, missing)
		}
	}
	heal := all[0].faulty(func(net.Conn) {}) // it accepts connections and does nothing
	if text, missing := all[1].logsAt(); text != want || fmt.Sprint(missing) != "[[head0]]" {
		t.Errorf("with a silent head0: %d bytes of %d: %.100q, and %v are missing", len(text), len(want), text, missing)
	}
	heal()
}

// A client that follows a log at one head receives the pieces of all heads, in order and once.
func TestLogsOfSeveralHeadsAreFollowed(t *testing.T) {
	t.Parallel()
	a, all := newRun(t)
	const pieces = 12
	var want strings.Builder
	for i := range pieces {
		fmt.Fprintf(&want, "piece %02d\n", i)
	}
	write := func(i int) { // each at another head than the one before
		a.wrote(all[i%3], 1, 9*i, fmt.Sprintf("piece %02d\n", i))
	}
	write(0)
	got := make([]string, len(all))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var following sync.WaitGroup
	received := make(chan int, len(all)*(pieces+1))
	for i, h := range all {
		c := h.client(h.admin)
		following.Go(func() {
			defer func() { received <- i }()
			for p, err := range c.Logs(ctx, "p-1", client.LogOptions{Follow: true}) {
				if err != nil {
					t.Errorf("%s: %v", h.name, err)
					return
				}
				got[i] += p.Text
				received <- i
			}
		})
	}
	var begun []int
	for len(begun) < len(all) { // all follow
		if i := <-received; !slices.Contains(begun, i) {
			begun = append(begun, i)
		}
	}
	for i := 1; i < pieces; i++ {
		write(i)
	}
	w := must(a.fleet.Workflows.Get("default/p-1"))(t)
	w.Status.State = trivet.WorkflowSucceeded
	put(a.head, a.fleet.Workflows, w)
	following.Wait()
	for i, text := range got {
		if text != want.String() {
			t.Errorf("at %s:\n%s", all[i].name, text)
		}
	}
}
