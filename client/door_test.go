package client_test

import (
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// An agent that turns to another head leaves no connection behind: of thousands, that would be thousands.
func TestAnAgentHasOneConnection(t *testing.T) {
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
	door := c.client(0, first.URL, second.URL).Door(func(*http.Request, []byte, string) {}, func(time.Time) {})
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
