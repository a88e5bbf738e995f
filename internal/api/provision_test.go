package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// An agent learns that its run is paused, and one that holds it waits at the head until it is resumed.
func TestPausedAgentWaitsAtTheHead(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	put(a.head, a.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	go func() { _ = a.handler.Run(t.Context()) }() // ends with the test
	a.claim()
	hello := a.helloOf(0)
	hello.Release = trivet.CurrentRelease
	g, err := a.send("/agent/v1/hello", hello)
	if err != nil || g.Run == nil || g.Paused {
		t.Fatalf("hello: %+v, %v", g, err)
	}
	cl := a.client(a.admin)
	if err := cl.Pause(t.Context(), "default", "p"); err != nil {
		t.Fatal(err)
	}
	if w := a.status(); w.Paused == nil || w.Paused.By != "root" {
		t.Errorf("the run: %+v", w.Paused)
	}
	g, err = a.sync(g.Epoch, 0, trivet.Report{Seq: 1, Action: "one", Attempt: 1, State: trivet.StepDone})
	if err != nil || !g.Paused || g.Acked != 1 || g.Order != trivet.OrderNone {
		t.Fatalf("sync: %+v, %v", g, err)
	}
	var got *trivet.Grant
	done := make(chan error, 1)
	go func() {
		var err error
		got, err = a.send("/agent/v1/sync", &trivet.Sync{Machine: "m1", Epoch: g.Epoch, BootID: a.bootID, Paused: true,
			Wait: trivet.MaxWait, Progress: &trivet.Progress{Action: "waiting"}})
		done <- err
	}()
	a.awaitHeard()
	resumed := time.Now()
	if err := cl.Resume(t.Context(), "default", "p"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || got.Paused || got.Epoch != g.Epoch || got.Order != trivet.OrderNone {
		t.Errorf("after %s: %+v, %v", time.Since(resumed), got, err)
	}
}

// The places of provisions are those among all that wait for the same, and are not stored.
func TestPlacesInTheQueue(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	cl := h.client(h.admin)
	queue := func() string {
		t.Helper()
		q, err := cl.Queue(t.Context())
		if err != nil || q.More {
			t.Fatalf("%+v, %v", q, err)
		}
		places := map[string]string{}
		for _, p := range q.Items {
			places[p.Provision] = strings.TrimPrefix(p.For, "labels ")
			for range p.Position {
				places[p.Provision] += "+"
			}
		}
		return places["a"] + " " + places["b"] + " " + places["c"] + " " + places["d"]
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		spec := trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"x": "1", "a": "2"}}
		if name == "c" {
			spec = trivet.ProvisionSpec{Template: "t", Machine: "m9"}
		}
		put(h, h.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name}, Spec: spec})
	}
	if got, want := queue(), "a=2,x=1+ a=2,x=1++ machine m9+ a=2,x=1+++"; got != want {
		t.Errorf("places: %s, want %s", got, want)
	}
	if err := cl.Pause(t.Context(), "default", "b"); err != nil {
		t.Fatal(err)
	}
	if got, want := queue(), "a=2,x=1+  machine m9+ a=2,x=1++"; got != want {
		t.Errorf("places: %s, want %s", got, want)
	}
	before := h.fleet.Store.Revision()
	for name, want := range map[string]trivet.QueuePlace{
		"a": {Position: 1, Of: 2, For: "labels a=2,x=1"}, "b": {Position: 2, Of: 3, For: "labels a=2,x=1"},
		"c": {Position: 1, Of: 1, For: "machine m9"}, "d": {Position: 2, Of: 2, For: "labels a=2,x=1"},
	} {
		want.Project, want.Provision = "default", name
		if got, err := cl.QueuePlace(t.Context(), "default", name); err != nil || got == nil || *got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	if h.fleet.Store.Revision() != before {
		t.Error("the places were stored")
	}
	if _, err := cl.QueuePlace(t.Context(), "default", "none"); err == nil {
		t.Error("a provision that does not exist has a place")
	}
}
