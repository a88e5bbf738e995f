package client_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A client with Fresh requests the latest revision from every head, and then accepts a stale response and reports that.
func TestFreshOrStale(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var asked counter
	serve := func(hasQuorum bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				refuse(w, trivet.ErrUnavailable)
				return
			}
			asked.add(r.Header.Get(trivet.HeaderRevision))
			switch {
			case hasQuorum:
			case r.Header.Get(trivet.HeaderRevision) == trivet.RevisionLatest:
				refuse(w, trivet.ErrUnavailable)
				return
			default:
				w.Header().Set(trivet.HeaderStale, "true")
			}
			w.Header().Set(trivet.HeaderRevision, "7")
			answer(w, machine("m1", ""))
		}
	}
	for _, hasQuorum := range []bool{true, false} {
		cfg := client.Config{Endpoints: []string{c.head(serve(false)).URL, c.head(serve(hasQuorum)).URL},
			Trust: c.keys.CA.Trust(), Fresh: true, RetryTimeout: -1}
		cl, err := client.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Of[trivet.Machine](cl).Get(t.Context(), "m1"); err != nil || cl.Stale() == hasQuorum {
			t.Errorf("one of them has a quorum %v: stale %v, %v", hasQuorum, cl.Stale(), err)
		}
		cl.Close()
	}
	if got, want := asked.all(), []string{trivet.RevisionLatest, trivet.RevisionLatest, trivet.RevisionLatest,
		trivet.RevisionLatest, ""}; !slices.Equal(got, want) {
		t.Errorf("asked %q; want %q", got, want)
	}
}

// A head that cannot serve does not have what Fresh requests, whatever revision it sends: the next head is requested
// for it, too.
func TestFreshAfterRefusal(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	refusing := c.head(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(trivet.HeaderRevision, "7")
		w.Header().Set(trivet.HeaderStale, "true")
		refuse(w, trivet.ErrUnavailable)
	})
	var asked counter
	good := c.head(func(w http.ResponseWriter, r *http.Request) {
		asked.add(r.Header.Get(trivet.HeaderRevision))
		w.Header().Set(trivet.HeaderRevision, "9")
		answer(w, machine("m1", "u"))
	})
	cl, err := client.New(client.Config{Endpoints: []string{refusing.URL, good.URL}, Trust: c.keys.CA.Trust(), Fresh: true,
		RetryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for range 2 {
		if _, err := client.Of[trivet.Machine](cl).Get(t.Context(), "m1"); err != nil || cl.Stale() {
			t.Errorf("stale %t, %v", cl.Stale(), err)
		}
	}
	if got := asked.all(); !slices.Equal(got, []string{trivet.RevisionLatest, "9"}) {
		t.Errorf("the head that serves was asked for %q", got)
	}
}
