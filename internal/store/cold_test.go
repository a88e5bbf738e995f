package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// clock returns times one second apart.
func clock(at time.Time) func() time.Time {
	return func() time.Time {
		at = at.Add(time.Second)
		return at
	}
}

func texts(t *testing.T, s *store.Store, after string, limit int) (all []string, last string) {
	t.Helper()
	entries, err := s.Cold(t.Context(), "log", after, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all, last = append(all, string(e.Doc)), e.ID
	}
	return all, last
}

func entry(n int) string { return fmt.Sprintf(`{"n":%d}`, n) }

// An entry is committed with the records of its transaction or not at all. It is not in the copy, and no watch of
// records sees it.
func TestColdEntryIsPartOfItsTransaction(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{Head: "head0"})
	far := open(t, m.Client(), store.Options{Head: "head1"})
	watch, failed := far.Watch(0), errors.New("failed")
	runs := 0
	ctx := store.BeforeCommit(t.Context(), func(tx *store.Tx) error {
		for _, c := range tx.Changes() {
			tx.Append("log", fmt.Appendf(nil, `{"%s":"%s"}`, c.Kind, c.Name))
		}
		return nil
	})
	update := func(name string, err error) error {
		_, got := h.Update(ctx, func(tx *store.Tx) error {
			if runs++; runs == 1 { // another head commits first
				_, other := far.Update(context.WithoutCancel(t.Context()), func(tx *store.Tx) error {
					return far.machines.In(tx).Create(machine("other", ""))
				})
				if other != nil {
					return other
				}
			}
			_, none := h.machines.In(tx).Get("other")
			return errors.Join(h.machines.In(tx).Create(machine(name, "")), ignoreMissing(none), err)
		})
		return got
	}
	if err := update("m1", nil); err != nil || runs != 2 {
		t.Fatalf("%v after %d runs", err, runs)
	}
	if err := update("m2", failed); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if _, err := h.Update(ctx, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") }); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Update(t.Context(), func(tx *store.Tx) error {
		tx.Append("log", []byte(entry(1)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{entry(1), `{"Machine":"m1"}`, `{"Machine":"m1"}`}
	if got, _ := texts(t, far.Store, "", 10); !slices.Equal(got, want) {
		t.Errorf("the entries are %s, want %s", got, want)
	}
	if err := far.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, err := watch.Next(t.Context())
	for err == nil && len(events) < 3 {
		var more []*store.Event
		more, err = watch.Next(t.Context())
		events = append(events, more...)
	}
	for _, e := range events {
		if err != nil || e.Kind != "Machine" {
			t.Errorf("a watch of all records returned %s %s, %v", e.Kind, e.Name, err)
		}
	}
}

func ignoreMissing(error) error { return nil }

func TestColdPagesAndTrim(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_700_000_000, 0)
	h := open(t, storetest.Member(t).Client(), store.Options{Head: "head0", Now: clock(begin)})
	const n = 30
	for i := range n {
		if _, err := h.Update(t.Context(), func(tx *store.Tx) error {
			tx.Append("log", []byte(entry(i)))
			tx.Append("logs of others", []byte(entry(i)))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	all, _ := texts(t, h.Store, "", 1000)
	if len(all) != n || all[0] != entry(n-1) || all[n-1] != entry(0) {
		t.Fatalf("%d entries, %s", len(all), all)
	}
	var paged []string
	for page, last := texts(t, h.Store, "", 7); len(page) > 0; page, last = texts(t, h.Store, last, 7) {
		paged = append(paged, page...)
	}
	if !slices.Equal(paged, all) {
		t.Errorf("in pages: %s", paged)
	}
	for _, c := range []struct {
		keep   int
		before time.Duration // since the beginning
		left   int
	}{{1000, 0, n}, {20, 0, 20}, {1000, 45 * time.Second, 8}, {5, 51 * time.Second, 5}, {0, 0, 0}} {
		if err := h.TrimCold(t.Context(), "log", c.keep, begin.Add(c.before)); err != nil {
			t.Fatal(err)
		}
		if got, _ := texts(t, h.Store, "", 1000); !slices.Equal(got, all[:c.left]) {
			t.Errorf("after trim to %d, since %s: %s", c.keep, c.before, got)
		}
	}
	if others, err := h.Cold(t.Context(), "logs of others", "", 1000); err != nil || len(others) != n {
		t.Errorf("%d entries of the other stream are left, %v", len(others), err)
	}
}

// A follower gets the entries of all heads.
func TestFollowCold(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, far := open(t, m.Client(), store.Options{Head: "head0"}), open(t, m.Client(), store.Options{Head: "head1"})
	got, done := make(chan store.ColdEntry, 10), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	after := far.Revision()
	go func() {
		_, err := far.FollowCold(ctx, "log", after, func(e store.ColdEntry) { got <- e })
		done <- err
	}()
	for i, s := range []*store.Store{h.Store, far.Store} {
		if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
			tx.Append("log", []byte(entry(i)))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if e := <-got; string(e.Doc) != entry(i) {
			t.Errorf("entry %d is %s", i, e.Doc)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An entry that no head of the cluster wrote, or that was moved to another place, is shown as refused.
func TestForgedColdEntry(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{Head: "head0"})
	h.must(t, func(tx *store.Tx) error {
		tx.Append("log", []byte(entry(1)))
		return nil
	})
	got, err := m.Client().Get(t.Context(), "/trivet-cold/log/", clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%d keys, %v", len(got.Kvs), err)
	}
	for key, value := range map[string]string{
		"/trivet-cold/log/0-forged": entry(2), "/trivet-cold/log/0-moved": string(got.Kvs[0].Value),
	} {
		if _, err := m.Client().Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := h.Cold(t.Context(), "log", "", 10)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, e := range entries {
		if refused := errors.Is(e.Err, store.ErrRefused); refused != (i < 2) || refused != (e.Doc == nil) {
			t.Errorf("entry %s: %q, %v", e.ID, e.Doc, e.Err)
		}
	}
}
