package client_test

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// An agent that turns to another head leaves no connection behind: of thousands, that would be thousands.
func TestAnAgentHasOneConnection(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	left := make(chan struct{})
	var own atomic.Pointer[net.Conn] // the first connection: later ones are probes
	c.conns = func(conn net.Conn, s http.ConnState) {
		if own.CompareAndSwap(nil, &conn); s == http.StateClosed && *own.Load() == conn {
			close(left)
		}
	}
	var tired atomic.Bool
	first := c.head(func(w http.ResponseWriter, _ *http.Request) {
		if tired.Load() {
			refuse(w, trivet.ErrUnavailable)
			return
		}
		answer(w, trivet.Grant{Machine: "m1"})
	})
	c.conns = nil
	second := c.head(func(w http.ResponseWriter, _ *http.Request) { answer(w, trivet.Grant{Machine: "m1"}) })
	door := c.client(0, first.URL, second.URL).AgentAPI(func(*http.Request, []byte, string) {}, func(time.Time) {})
	if _, err := door.Hello(t.Context(), trivet.Hello{Machine: "m1"}); err != nil {
		t.Fatal(err)
	}
	tired.Store(true)
	if _, err := door.Sync(t.Context(), trivet.Sync{Machine: "m1", Reports: []trivet.Report{{Seq: 1}}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
	case <-time.After(30 * time.Second): // idle connections end after 90
		t.Error("the connection to the first head stays")
	}
}

// Only a head can refuse an agent. Where a head's address went to another box, or its certificate is over, the run goes on.
func TestStrangersRefuseNoAgent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	stranger := newCluster(t).head(func(http.ResponseWriter, *http.Request) {})
	head := c.head(func(w http.ResponseWriter, _ *http.Request) { refuse(w, trivet.ErrUnauthenticated) })
	for url, want := range map[string]error{stranger.URL: trivet.ErrUnavailable, head.URL: trivet.ErrUnauthenticated} {
		door := c.client(0, url).AgentAPI(func(*http.Request, []byte, string) {}, func(time.Time) {})
		_, err := door.Sync(t.Context(), trivet.Sync{Machine: "m1"})
		if !errors.Is(err, want) || errors.Is(err, trivet.ErrUnauthenticated) != (want == trivet.ErrUnauthenticated) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
