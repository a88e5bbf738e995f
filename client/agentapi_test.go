package client_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// An agent that moves to another head closes its old connection: a head would keep thousands of idle ones.
func TestAnAgentHasOneConnection(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	left := make(chan struct{})
	var own atomic.Pointer[net.Conn] // the first connection
	c.conns = func(conn net.Conn, s http.ConnState) {
		if own.CompareAndSwap(nil, &conn); s == http.StateClosed && *own.Load() == conn {
			close(left)
		}
	}
	var tired atomic.Bool
	var home atomic.Int32 // the head that the hello reached: either
	head := func(number int32) server {
		return c.head(func(w http.ResponseWriter, _ *http.Request) {
			if home.CompareAndSwap(0, number); tired.Load() && home.Load() == number {
				refuse(w, trivet.ErrUnavailable)
				return
			}
			answer(w, trivet.Grant{Machine: "m1"})
		})
	}
	first, second := head(1), head(2)
	agent := c.client(0, first.URL, second.URL).AgentAPI(func(*http.Request, []byte, string) {}, func(time.Time) {})
	if _, err := agent.Hello(t.Context(), trivet.Hello{Machine: "m1"}); err != nil {
		t.Fatal(err)
	}
	tired.Store(true)
	if _, err := agent.Sync(t.Context(), trivet.Sync{Machine: "m1", Reports: []trivet.Report{{Seq: 1}}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
	case <-time.After(30 * time.Second): // idle connections end after 90
		t.Error("the connection to the first head stays")
	}
}

// Only a head can refuse an agent. If a head's address was reassigned, or its certificate has expired, the run
// continues.
func TestForeignServerCannotRefuseAgent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	foreign := newCluster(t).head(func(http.ResponseWriter, *http.Request) {})
	head := c.head(func(w http.ResponseWriter, _ *http.Request) { refuse(w, trivet.ErrUnauthenticated) })
	for url, want := range map[string]error{foreign.URL: trivet.ErrUnavailable, head.URL: trivet.ErrUnauthenticated} {
		agent := c.client(0, url).AgentAPI(func(*http.Request, []byte, string) {}, func(time.Time) {})
		_, err := agent.Sync(t.Context(), trivet.Sync{Machine: "m1"})
		if !errors.Is(err, want) || errors.Is(err, trivet.ErrUnauthenticated) != (want == trivet.ErrUnauthenticated) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// Every request of an agent is signed in the machine's name, its hello too.
func TestHelloIsSigned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	head := c.head(func(w http.ResponseWriter, _ *http.Request) { answer(w, trivet.Grant{Machine: "m1"}) })
	var signed []string
	agent := c.client(0, head.URL).AgentAPI(func(req *http.Request, _ []byte, machine string) {
		signed = append(signed, req.URL.Path+" "+machine)
	}, func(time.Time) {})
	if _, err := agent.Hello(t.Context(), trivet.Hello{Machine: "m1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Sync(t.Context(), trivet.Sync{Machine: "m1"}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/agent/v1/hello m1", "/agent/v1/sync m1"}; !slices.Equal(signed, want) {
		t.Errorf("signed %q, want %q", signed, want)
	}
}

// An agent, of which a head has thousands, uses HTTP/1.1, and asks no head to wait longer than any does, so that it
// leaves one that was stopped; other clients use HTTP/2.
func TestAgentsRequestsAreCheap(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var protocols, waits counter
	head := c.head(func(w http.ResponseWriter, r *http.Request) {
		protocols.add(r.URL.Path + " " + r.Proto)
		var s trivet.Sync
		if err := json.NewDecoder(r.Body).Decode(&s); err == nil && r.URL.Path == "/agent/v1/sync" {
			waits.add(s.Wait.String())
		}
		answer(w, trivet.Grant{Machine: "m1", Interval: trivet.Duration(5 * time.Second)})
	})
	cl := c.client(0, head.URL)
	agent := cl.AgentAPI(func(*http.Request, []byte, string) {}, func(time.Time) {})
	for _, wait := range []trivet.Duration{trivet.MaxWait, trivet.MaxWait, trivet.Duration(time.Second), 0} {
		if _, err := agent.Sync(t.Context(), trivet.Sync{Machine: "m1", Wait: wait}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cl.Whoami(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync := "/agent/v1/sync HTTP/1.1"
	if got, want := protocols.all(), []string{sync, sync, sync, sync, "/v1/whoami HTTP/2.0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// the first one does not know the heads' interval yet
	if got, want := waits.all(), []string{trivet.MaxWait.String(), "10s", "1s", "0s"}; !slices.Equal(got, want) {
		t.Errorf("waits of %q, want %q", got, want)
	}
}
