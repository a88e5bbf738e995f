package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// put writes a machine and returns the revision of the write.
func (h *head) put(t testing.TB, name, rack string) int64 {
	t.Helper()
	return h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Put(machine(name, rack)) })
}

// next returns n events as "name@revision", with the prefix "-" for deletions.
func next(t *testing.T, w *store.Watcher, n int) (got []string) {
	t.Helper()
	for len(got) < n {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			sign := ""
			if e.Deleted {
				sign = "-"
			}
			got = append(got, fmt.Sprint(sign, e.Name, "@", e.Revision))
		}
	}
	return got
}

// same compares events with the expected ones.
func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func at(sign, name string, rev int64) string { return fmt.Sprint(sign, name, "@", rev) }

func TestWatchResumesFromRevision(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{})
	one := h.put(t, "m1", "r1")
	two, three := h.put(t, "m1", "r2"), h.put(t, "m2", "r1")
	four := h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") })
	now := h.Watch(0)
	w := h.Watch(one)
	same(t, next(t, w, 3), at("", "m1", two), at("", "m2", three), at("-", "m1", four))
	if w.Revision() != four {
		t.Errorf("the watch is at %d, want %d", w.Revision(), four)
	}
	same(t, next(t, h.Watch(two), 2), at("", "m2", three), at("-", "m1", four))

	// A head that was started later does not have these events and reads them from etcd.
	later := open(t, m.Client(), store.Options{})
	w = later.Watch(one)
	five := h.put(t, "m3", "")
	same(t, next(t, w, 4), at("", "m1", two), at("", "m2", three), at("-", "m1", four), at("", "m3", five))
	same(t, next(t, now, 1), at("", "m3", five))
}

func TestEventsHaveOldAndNewRecord(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{})
	from := h.put(t, "m1", "r1")
	h.put(t, "m1", "r2")
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") })
	rack := func(r trivet.Record) string {
		if r == nil {
			return "none"
		}
		return r.(*trivet.Machine).Spec.Rack
	}
	for name, s := range map[string]*head{"from memory": h, "from etcd": open(t, m.Client(), store.Options{})} {
		var got []string
		for w := s.Watch(from); len(got) < 2; {
			events, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				got = append(got, fmt.Sprint(rack(e.Old()), ">", rack(e.Record())))
			}
		}
		if !slices.Equal(got, []string{"r1>r2", "r2>none"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWatchOfAKind(t *testing.T) {
	t.Parallel()
	m, heads := twoHeads(t)
	h := heads[0]
	all, machines, images := h.Watch(0), h.Watch(0, "Machine"), h.Watch(0, "Image")
	one := h.put(t, "m1", "")
	// A lease is an internal key, without watchers.
	err := h.WithLease(t.Context(), "x", 1<<40, func(context.Context, *store.Lease) error {
		_, err := m.Client().Put(t.Context(), "/trivet/image/i1", h.Sealed("/trivet/image/i1", `{"kind":"Image"}`))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := h.Get("Image", "i1") // a kind without a table
	if err != nil {
		t.Fatal(err)
	}
	two := h.put(t, "m2", "")
	same(t, next(t, all, 3), at("", "m1", one), at("", "i1", image.Revision()), at("", "m2", two))
	same(t, next(t, machines, 2), at("", "m1", one), at("", "m2", two))
	same(t, next(t, images, 1), at("", "i1", image.Revision()))

	// A watch advances though no event matches.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	events, err := images.Next(ended)
	if len(events) > 0 || !errors.Is(err, context.Canceled) || images.Revision() < two {
		t.Errorf("%v, %v; the watch is at %d, want %d", events, err, images.Revision(), two)
	}
}

func TestCompactionIsReported(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{})
	one, two := h.put(t, "m1", "r1"), h.put(t, "m1", "r2")
	if _, err := m.Client().Compact(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if same(t, next(t, h.Watch(one), 1), at("", "m1", two)); t.Failed() {
		t.Error("the head has these events in its history")
	}
	later := open(t, m.Client(), store.Options{})
	if events, err := later.Watch(one - 1).Next(t.Context()); !errors.Is(err, trivet.ErrCompacted) {
		t.Fatalf("after a compaction: %v, %v", events, err)
	}
	list, rev := later.List("Machine", "", "", 0)
	if len(list) != 1 || list[0].Revision() != two {
		t.Errorf("list: %v", list)
	}
	three := h.put(t, "m2", "")
	same(t, next(t, later.Watch(rev), 1), at("", "m2", three))
}

// What is read from etcd for a watch that is resumed is bounded, in revisions and bytes: beyond, the consumer lists.
func TestReplayIsBounded(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{})
	first := h.put(t, "m0", "")
	for i := range 20 {
		h.put(t, fmt.Sprint("m", i+1), strings.Repeat("r", 1000))
	}
	for _, limit := range []int64{20, 19} {
		later := open(t, m.Client(), store.Options{})
		later.LimitReplay(limit, 1<<20)
		w := later.Watch(first)
		if limit < 20 {
			if events, err := w.Next(t.Context()); !errors.Is(err, trivet.ErrCompacted) {
				t.Errorf("20 revisions behind, of at most %d: %d events, %v", limit, len(events), err)
			}
			continue
		}
		for events := 0; events < 20; {
			some, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			events += len(some)
		}
		later.LimitReplay(limit, 10_000)
		w.Rewind(first, 1<<20) // it is not up to date
		if events, err := w.Next(t.Context()); !errors.Is(err, trivet.ErrCompacted) {
			t.Errorf("after more than 20,000 bytes, of at most 10,000: %d events, %v", len(events), err)
		}
	}
}

// A head whose link was cut until etcd compacted the changes reloads the copy and reports the gap to its watchers.
func TestFeedReloadsAfterCompaction(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	behind, h := open(t, link.client(), store.Options{Head: "head1"}), open(t, m.Client(), store.Options{Head: "head0"})
	h.put(t, "m0", "")
	if err := behind.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := behind.Watch(0)
	link.cut(true)
	h.put(t, "m1", "r1")
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m0") })
	last := h.put(t, "m1", "r2")
	if _, err := m.Client().Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	link.cut(false)
	if err := behind.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if list := behind.machines.List(); len(list) != 1 || list[0].Spec.Rack != "r2" {
		t.Errorf("after the compaction the copy has %v", list)
	}
	if events, err := w.Next(t.Context()); !errors.Is(err, trivet.ErrCompacted) {
		t.Errorf("the consumer got %v, %v", events, err)
	}
}

// A watch that omits a revision is detected: the watch restarts, and no watcher misses an event.
func TestGapIsDetected(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	behind, h := open(t, link.client(), store.Options{Head: "head1"}), open(t, m.Client(), store.Options{Head: "head0"})
	w := behind.Watch(0)
	one := h.put(t, "m1", "")
	link.omit(one + 1)
	two, three := h.put(t, "m2", ""), h.put(t, "m3", "")
	same(t, next(t, w, 3), at("", "m1", one), at("", "m2", two), at("", "m3", three))
	if err := behind.Sync(t.Context()); err != nil || behind.machines.Len() != 3 {
		t.Errorf("the copy has %d machines, %v", behind.machines.Len(), err)
	}
}

// A watcher that does not read blocks nothing and uses no memory. When it reads, it gets all events in whole revisions.
func TestSlowConsumer(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	slow := h.Watch(0)
	const each, writes = 110, store.HistoryEvents/110 + 20
	for i := range writes {
		h.must(t, func(tx *store.Tx) error {
			for j := range each {
				m := machine(fmt.Sprint("m", j), "")
				m.Status.Epoch = int64(i + 1)
				if err := h.machines.In(tx).Put(m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if events, bytes := h.Held(); events > store.HistoryEvents || bytes > store.HistoryBytes {
		t.Errorf("the history holds %d events of %d bytes", events, bytes)
	}
	epoch, left := map[string]int64{}, writes*each
	for last := int64(0); left > 0; {
		events, err := slow.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if events[0].Revision <= last {
			t.Fatalf("revision %d was split", last)
		}
		for _, e := range events {
			now := e.Record().(*trivet.Machine).Status.Epoch
			if now != epoch[e.Name]+1 || e.Revision < last {
				t.Fatalf("%s has epoch %d after %d, at %d after %d", e.Name, now, epoch[e.Name], e.Revision, last)
			}
			epoch[e.Name], last = now, e.Revision
		}
		left -= len(events)
	}
}

// A watcher receives an event only when the copy has the change.
func TestEventsAreReadable(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	link := newFaults(m.Client(), 1)
	h := open(t, m.Client(), store.Options{Head: "head0"})
	from := h.put(t, "m1", "r1")
	behind := open(t, link.client(), store.Options{Head: "head1"})
	h.put(t, "m1", "r2")
	if err := behind.Sync(t.Context()); err != nil { // its own watch is open
		t.Fatal(err)
	}
	release := link.stall()
	last := h.put(t, "m1", "r3")
	delivered := make(chan error)
	go func() {
		for w := behind.Watch(from); w.Revision() < last; { // from before the start of this head: read from etcd
			if _, err := w.Next(t.Context()); err != nil {
				delivered <- err
				return
			}
		}
		if m, err := behind.machines.Get("m1"); err != nil || m.Revision < last {
			delivered <- fmt.Errorf("an event of %d, and the copy has %+v, %w", last, m, err)
		}
		close(delivered)
	}()
	select {
	case err := <-delivered:
		release()
		t.Errorf("delivered before the copy has the change: %v", err)
	case <-time.After(200 * time.Millisecond):
		release()
		if err := <-delivered; err != nil {
			t.Error(err)
		}
	}
}

func TestWatchEndsWithItsStore(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	w, ended := h.Watch(0), make(chan error)
	go func() {
		_, err := w.Next(t.Context())
		ended <- err
	}()
	h.Close()
	if err := <-ended; !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the watch ended with %v", err)
	}
}
