package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// script plays one connection after another: frames as "event@id name", then the end.
func script(t *testing.T, asked *counter, connections ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" { // a probe is no connection of the watch
			refuse(w, trivet.ErrUnavailable)
			return
		}
		n := asked.add(r.URL.Query().Get("from"))
		if n > len(connections) {
			<-r.Context().Done()
			return
		}
		for frame := range strings.FieldsSeq(connections[n-1]) {
			switch {
			case frame == "410":
				refuse(w, trivet.ErrCompacted)
			case frame == "cut":
				drop()
			default:
				w.Write(parseFrame(t, frame))
				w.(http.Flusher).Flush()
			}
		}
	}
}

func parseFrame(t *testing.T, text string) []byte {
	event, rest, _ := strings.Cut(text, "@")
	id, name, _ := strings.Cut(rest, ":")
	var revision int64
	fmt.Sscan(id, &revision)
	data := []byte("{}")
	if name != "" {
		var err error
		if data, err = json.Marshal(machine(name, "")); err != nil {
			t.Error(err)
		}
	}
	return apitypes.AppendEvent(nil, event, revision, data)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from          int64
		connections   []string
		events, asked string
	}{
		"continues after a lost head": {
			0, []string{"put@3:m1 synced@5 put@6:m2 bookmark@9 cut", "delete@11:m1 drain@11", "put@12:m3"},
			"put:m1 synced put:m2 delete:m1 put:m3", " 9 11"},
		"lost in the middle of a transaction": {
			4, []string{"put@5:m1 put@6:m2 cut", "put@6:m2 put@6:m3 cut", "put@6:m2 put@6:m3 put@6:m4 put@7:m5"},
			"put:m1 put:m2 put:m3 put:m4 put:m5", "4 5 5"},
		"lost before synced": {
			0, []string{"put@3:m1 cut", "put@3:m1 synced@5"},
			"put:m1 reset put:m1 synced", " "},
		"compacted": {
			7, []string{"410", "put@30:m9 synced@31"},
			"reset put:m9 synced", "7 "},
		"not reached yet, then served": {
			4, []string{"cut", "put@5:m1"},
			"put:m1", "4 4"},
		"a newer head's events and kinds": {
			4, []string{"put@5:m1 sparkle@6 put@7:m2", ""},
			"put:m1 put:m2", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			var asked counter
			h := c.head(script(t, &asked, tc.connections...))
			want := strings.Fields(tc.events)
			var events []string
			for e, err := range client.Of[trivet.Machine](c.client(-1, h.URL)).Watch(t.Context(),
				client.WatchOptions{From: tc.from}) {
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, strings.TrimSuffix(string(e.Type)+":"+e.Name, ":"))
				if len(events) == len(want) {
					break
				}
			}
			if diff := cmp.Diff(want, events); diff != "" {
				t.Error(diff)
			}
			if got := strings.Join(asked.all(), " "); got != tc.asked {
				t.Errorf("asked from %q; want %q", got, tc.asked)
			}
		})
	}
}

func TestWatchEndsIfRetryCannotHelp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := c.head(func(w http.ResponseWriter, r *http.Request) { refuse(w, trivet.ErrForbidden) })
	n := 0
	for _, err := range c.client(time.Minute, h.URL).Watch(t.Context(), client.WatchOptions{}) {
		if n++; !errors.Is(err, trivet.ErrForbidden) {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
}

// An endpoint that is not of the cluster, such as a reassigned address, does not end a watch whose heads are down.
func TestWatchWaitsForHeadsBesideForeignServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var asked counter
	play := script(t, &asked, "cut", "put@5:m1")
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			drop()
		}
		play(w, r)
	})
	foreign := newCluster(t).head(nil)
	for e, err := range client.Of[trivet.Machine](c.client(-1, foreign.URL, h.URL)).Watch(t.Context(),
		client.WatchOptions{From: 4}) {
		if err != nil || e.Name != "m1" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
}

// The deadline of a watch is no failure of the head that served it.
func TestWatchDeadline(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var asked counter
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		script(t, &asked, "put@5:m1")(w, r)
		<-r.Context().Done()
	})
	cl := c.client(-1, h.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var end error
	for _, err := range client.Of[trivet.Machine](cl).Watch(ctx, client.WatchOptions{From: 4}) {
		cancel(context.DeadlineExceeded)
		end = err
	}
	if !errors.Is(end, context.DeadlineExceeded) || len(asked.all()) != 1 {
		t.Errorf("after %d connections: %v", len(asked.all()), end)
	}
	if h := healthOf(cl, h.URL); h.State != client.HeadUp || h.Failures != 0 {
		t.Errorf("%+v", h)
	}
}

// A loop that cancels its context and then breaks receives nothing more.
func TestWatchContextEndsInLoop(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var asked counter
	h := c.head(script(t, &asked, "put@3:m1 put@4:m2"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range client.Of[trivet.Machine](c.client(-1, h.URL)).Watch(ctx, client.WatchOptions{}) {
		cancel()
		break
	}
}
