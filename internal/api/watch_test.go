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

// follow gives events as "type kind/name" until n have come.
func follow(t *testing.T, c *client.Client, o client.WatchOptions, n int, between func(i int)) (told []string, last client.Event) {
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
		told, last = append(told, text), e
		if between != nil {
			between(len(told))
		}
		if len(told) == n {
			break
		}
	}
	return told, last
}

func TestWatchFollowsFromTheCurrentState(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	machines := client.Of[trivet.Machine](admin)
	old := machine("m1", macA)
	old.Labels = map[string]string{"rack": "r1"}
	put(h, h.fleet.Machines, old)
	put(h, h.fleet.Machines, machine("m2", macB)) // has not the label
	change := func(i int) {
		if i != 2 {
			return
		}
		other := machine("m3", macC)
		other.Labels = map[string]string{"rack": "r1"}
		_, err := machines.Create(t.Context(), other)
		_, err2 := machines.Patch(t.Context(), "m1", []byte(`{"labels":{"rack":"r2"}}`), 0)   // leaves the selection
		_, err3 := machines.Patch(t.Context(), "m2", []byte(`{"labels":{"rack":"r1"}}`), 0)   // enters it
		_, err4 := machines.Patch(t.Context(), "m1", []byte(`{"spec":{"cordoned":true}}`), 0) // is not in it
		if err := errors.Join(err, err2, err3, err4, machines.Delete(t.Context(), "m3")); err != nil {
			t.Error(err)
		}
	}
	told, last := follow(t, admin, client.WatchOptions{Kinds: []trivet.Kind{"Machine"}, Labels: "rack=r1"}, 6, change)
	want := []string{"put machine/m1", "synced", "put machine/m3", "delete machine/m1", "put machine/m2", "delete machine/m3"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	put(h, h.fleet.Machines, machine("m4"))
	told, _ = follow(t, admin, client.WatchOptions{From: last.Revision}, 1, nil)
	if diff := cmp.Diff([]string{"put machine/m4"}, told); diff != "" {
		t.Errorf("resumed after %d:\n%s", last.Revision, diff)
	}
}

func TestWatchHidesSecrets(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	secret := &trivet.Secret{Meta: trivet.Meta{Name: "bmc"}, Spec: trivet.SecretSpec{Data: map[string]string{"password": "hunter2"}}}
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

// A head that stops tells its feeds to go on elsewhere, and takes no new ones.
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
		t.Errorf("a new feed: %d", status)
	}
}

// cue is a client that does something as soon as it has read a first piece.
type cue struct {
	*httptest.ResponseRecorder
	do func()
}

func (c *cue) Flush() { c.do() }

// A head that stops in the middle of news sends its client on from what that was told, and not from what is left to tell.
func TestADrainedWatchGoesOnAfterWhatWasTold(t *testing.T) {
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
	r := httptest.NewRequestWithContext(ctx, "GET", fmt.Sprintf("https://head0/v1/watch?kinds=machines&from=%d", start), nil)
	r.Header.Set("Authorization", "Bearer "+h.admin)
	w := &cue{httptest.NewRecorder(), func() {
		h.handler.Drain()
		cancel() // as the drain does, but by now
	}}
	h.handler.ServeHTTP(w, r)
	told, last := 0, frame{}
	for frames := newFrameReader(w.Body); last.Event != trivet.WatchDrain; {
		f, err := frames.Next()
		if err != nil {
			t.Fatalf("after %d events: %v", told, err)
		}
		if last = f; f.Event == trivet.WatchPut {
			told++
		}
	}
	left, _ := h.fleet.Store.Watch(last.ID, "Machine").Next(ctx) // ctx has ended: what is there, or nothing
	if told == 0 || told+len(left) != n {
		t.Errorf("%d of %d were told before the drain at %d, after which there are %d", told, n, last.ID, len(left))
	}
}

// A revision of another history (a restored backup) and one that is compacted begin anew.
func TestWatchFromARevisionThatIsNotThere(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	if status, got := h.ask(h.admin, "GET", fmt.Sprintf("/v1/watch?from=%d", h.fleet.Store.Revision()+1000), ""); status != 410 {
		t.Errorf("ahead of the cluster: %d %v", status, got)
	}
	told, _ := follow(t, h.client(h.admin), client.WatchOptions{Kinds: []trivet.Kind{"Machine"}, From: h.fleet.Store.Revision() + 1000}, 2, nil)
	if diff := cmp.Diff([]string{"reset", "synced"}, told); diff != "" {
		t.Error(diff)
	}
}

// Many writers, one slow beginning: every change is told, in order.
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
