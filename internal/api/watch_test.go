package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

// follow returns the first n events as "type kind/name".
func follow(t *testing.T, c *client.Client, o client.WatchOptions, n int, between func(i int)) (got []string,
	last client.Event) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range c.Watch(ctx, o) {
		if err != nil {
			t.Fatal(err)
		}
		text := string(e.Type)
		if e.Name != "" {
			text += " " + strings.ToLower(string(e.Kind)) + "/" + e.Name
		}
		got, last = append(got, text), e
		if between != nil {
			between(len(got))
		}
		if len(got) == n {
			break
		}
	}
	return got, last
}

func TestWatchFollowsFromTheCurrentState(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	machines := client.Of[trivet.Machine](admin)
	old := machine("m1", macA)
	old.Labels = map[string]string{"rack": "r1"}
	put(h, h.fleet.Machines, old)
	put(h, h.fleet.Machines, machine("m2", macB)) // does not have the label
	change := func(i int) {
		if i != 2 {
			return
		}
		other := machine("m3", macC)
		other.Labels = map[string]string{"rack": "r1"}
		_, err := machines.Create(t.Context(), other)
		_, err2 := machines.Patch(t.Context(), "m1", []byte(`{"labels":{"rack":"r2"}}`), 0)   // no longer matches
		_, err3 := machines.Patch(t.Context(), "m2", []byte(`{"labels":{"rack":"r1"}}`), 0)   // matches now
		_, err4 := machines.Patch(t.Context(), "m1", []byte(`{"spec":{"cordoned":true}}`), 0) // does not match
		if err := errors.Join(err, err2, err3, err4, machines.Delete(t.Context(), "m3")); err != nil {
			t.Error(err)
		}
	}
	got, last := follow(t, admin, client.WatchOptions{Kinds: []trivet.Kind{"Machine"}, Labels: "rack=r1"}, 6, change)
	want := []string{"put machine/m1", "synced", "put machine/m3", "delete machine/m1", "put machine/m2",
		"delete machine/m3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	put(h, h.fleet.Machines, machine("m4"))
	got, _ = follow(t, admin, client.WatchOptions{From: last.Revision}, 1, nil)
	if diff := cmp.Diff([]string{"put machine/m4"}, got); diff != "" {
		t.Errorf("resumed after %d:\n%s", last.Revision, diff)
	}
}

func TestWatchHidesSecrets(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	secret := &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "bmc"},
		Spec: trivet.SecretSpec{Data: map[string]string{"password": "hunter2"}}}
	if _, err := client.Of[trivet.Secret](admin).Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for e, err := range admin.Watch(t.Context(), client.WatchOptions{Kinds: []trivet.Kind{"Secret", "Token"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(e.Raw), "sealed:v1") || strings.Contains(string(e.Raw), "sha256:") {
			t.Errorf("%s", e.Raw)
		}
		if e.Type == client.Synced {
			break
		}
	}
}

// A head that stops ends its watches so that they continue at another head, and accepts no new ones.
func TestWatchIsDrained(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	resp := h.do(h.admin, "GET", "/v1/watch?kinds=machines", "")
	defer resp.Body.Close()
	frames := newFrameReader(resp.Body)
	if f, err := frames.Next(); err != nil || f.Event != trivet.WatchSynced {
		t.Fatalf("%+v, %v", f, err)
	}
	h.handler.Drain()
	if f, err := frames.Next(); err != nil || f.Event != trivet.WatchDrain || f.ID == 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := frames.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the drain: %v", err)
	}
	if status, _ := h.ask(h.admin, "GET", "/v1/watch", ""); status != http.StatusServiceUnavailable {
		t.Errorf("a new watch: %d", status)
	}
}

// cue is a client that calls do when it has read the first part of the response.
type cue struct {
	*httptest.ResponseRecorder
	do func()
}

func (c *cue) Flush() { c.do() }

// A head that stops while it sends events drains its watch at the revision of the last event sent, not of one still
// pending.
func TestDrainedWatchContinuesAfterLastEventSent(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	start := h.fleet.Store.Revision()
	const n, each = 800, 40 // some batches
	for i := range n / each {
		_, err := h.fleet.Store.Update(t.Context(), func(tx *store.Tx) (err error) {
			for j := range each {
				err = errors.Join(err, h.fleet.Machines.In(tx).Put(machine(fmt.Sprintf("m%03d", i*each+j))))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", fmt.Sprintf("https://head0/v1/watch?kinds=machines&from=%d", start),
		nil)
	r.Header.Set("Authorization", "Bearer "+h.admin)
	w := &cue{httptest.NewRecorder(), func() {
		h.handler.Drain()
		cancel() // as the drain does, but now
	}}
	h.handler.ServeHTTP(w, r)
	got, last := 0, frame{}
	for frames := newFrameReader(w.Body); last.Event != trivet.WatchDrain; {
		f, err := frames.Next()
		if err != nil {
			t.Fatalf("after %d events: %v", got, err)
		}
		if last = f; f.Event == trivet.WatchPut {
			got++
		}
	}
	left, _ := h.fleet.Store.Watch(last.ID, "Machine").Next(ctx) // ctx has ended: what is pending, or nothing
	if got == 0 || got+len(left) != n {
		t.Errorf("%d of %d were sent before the drain at %d, after which there are %d", got, n, last.ID, len(left))
	}
}

// A watch from a revision of another history (a restored backup), or from a compacted one, starts again.
func TestWatchFromMissingRevision(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	if status, got := h.ask(h.admin, "GET", fmt.Sprintf("/v1/watch?from=%d", h.fleet.Store.Revision()+1000),
		""); status != 410 {
		t.Errorf("ahead of the cluster: %d %v", status, got)
	}
	got, _ := follow(t, h.client(h.admin), client.WatchOptions{Kinds: []trivet.Kind{"Machine"},
		From: h.fleet.Store.Revision() + 1000}, 2, nil)
	if diff := cmp.Diff([]string{"reset", "synced"}, got); diff != "" {
		t.Error(diff)
	}
}

// Many writes while a watch begins: every change is sent, in order.
func TestWatchMissesNothing(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	const n = 300
	start := h.fleet.Store.Revision()
	go func() {
		for i := range n {
			h.fleet.Store.Update(context.Background(), func(tx *store.Tx) error {
				return h.fleet.Machines.In(tx).Put(machine(fmt.Sprintf("m%03d", i)))
			})
		}
	}()
	seen, last := 0, int64(0)
	for e, err := range admin.Watch(t.Context(), client.WatchOptions{Kinds: []trivet.Kind{"Machine"}, From: start}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != client.Put || e.Name != fmt.Sprintf("m%03d", seen) || e.Revision <= last {
			t.Fatalf("event %d is %s %s at %d after %d", seen, e.Type, e.Name, e.Revision, last)
		}
		last = e.Revision
		if seen++; seen == n {
			break
		}
	}
}
