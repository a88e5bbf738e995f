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

// wrote sends a piece of what action "one" wrote to this head, as its agent does.
func (a *agent) wrote(h *head, offset int, text string) {
	a.t.Helper()
	q := url.Values{"workflow": {"p-1"}, "action": {"one"}, "attempt": {"1"}, "offset": {fmt.Sprint(offset)}}
	req := must(http.NewRequestWithContext(a.t.Context(), "POST", h.url+"/agent/v1/logs?"+q.Encode(), strings.NewReader(text)))(a.t)
	auth.SignRequest(req, []byte(text), "m1", a.key, h.handler.Now())
	resp := must(h.http().Do(req))(a.t)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		a.t.Fatalf("%s: %d", h.name, resp.StatusCode)
	}
}

// logsAt gives what a head tells of the log, and which heads it says it could not ask.
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

// newRun makes three heads that know each other, and an agent at work.
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

// An agent that changes heads leaves a part of its log at each. Every head tells all of it, and which heads it cannot ask.
func TestLogsOfSeveralHeads(t *testing.T) {
	t.Parallel()
	a, all := newRun(t)
	long := strings.Repeat("0123456789äöü\n", 10000)
	pieces := []string{"at the first\n", long, "at the first again\n", "and at the last\n"}
	offset, want := 0, strings.Join(pieces, "")
	for i, piece := range pieces {
		a.wrote(all[[]int{0, 1, 0, 2}[i]], offset, piece)
		offset += len(piece)
	}
	a.wrote(all[2], len(pieces[0]), long) // the answer was lost, and it was sent again
	for _, h := range all {
		if text, missing := h.logsAt(); text != want || missing != nil {
			t.Errorf("%s tells %d bytes of %d: %.100q, and %v are missing", h.name, len(text), len(want), text, missing)
		}
	}

	all[0].server.Close()
	want = strings.Join([]string{pieces[1], pieces[3]}, "")
	for _, h := range all[1:] {
		if text, missing := h.logsAt(); text != want || fmt.Sprint(missing) != "[[head0]]" {
			t.Errorf("%s, without head0, tells %d bytes of %d: %.100q, and %v are missing", h.name, len(text), len(want), text, missing)
		}
	}
	heal := all[0].faulty(func(net.Conn) {}) // it takes connections and does nothing
	if text, missing := all[1].logsAt(); text != want || fmt.Sprint(missing) != "[[head0]]" {
		t.Errorf("with a silent head0: %d bytes of %d: %.100q, and %v are missing", len(text), len(want), text, missing)
	}
	heal()
}

// Who follows a log at any head is told what comes at all of them, in its order and once.
func TestLogsOfSeveralHeadsAreFollowed(t *testing.T) {
	t.Parallel()
	a, all := newRun(t)
	const pieces = 12
	var want strings.Builder
	for i := range pieces {
		fmt.Fprintf(&want, "piece %02d\n", i)
	}
	write := func(i int) { // each at another head than the one before
		a.wrote(all[i%3], 9*i, fmt.Sprintf("piece %02d\n", i))
	}
	write(0)
	got := make([]string, len(all))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var following sync.WaitGroup
	told := make(chan int, len(all)*(pieces+1))
	for i, h := range all {
		c := h.client(h.admin)
		following.Go(func() {
			defer func() { told <- i }()
			for p, err := range c.Logs(ctx, "p-1", client.LogOptions{Follow: true}) {
				if err != nil {
					t.Errorf("%s: %v", h.name, err)
					return
				}
				got[i] += p.Text
				told <- i
			}
		})
	}
	var begun []int
	for len(begun) < len(all) { // all follow
		if i := <-told; !slices.Contains(begun, i) {
			begun = append(begun, i)
		}
	}
	for i := 1; i < pieces; i++ {
		write(i)
	}
	w := must(a.fleet.Workflows.Get("p-1"))(t)
	w.Status.State = trivet.WorkflowSucceeded
	put(a.head, a.fleet.Workflows, w)
	following.Wait()
	for i, text := range got {
		if text != want.String() {
			t.Errorf("at %s:\n%s", all[i].name, text)
		}
	}
}
