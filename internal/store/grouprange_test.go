package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A transaction that deletes a range of keys shares none: etcd refuses a whole group in which another one writes there.
func TestGroupWithoutRanges(t *testing.T) {
	t.Parallel()
	client, g := gated(t, storetest.Member(t).Client())
	a := openArchive(t, client, store.Options{})
	h := &groupHead{a.head, a.NewGroup(), client, g, make(chan error, 10)}
	h.hold(t)
	for i, do := range []func(tx *store.Tx) error{
		func(tx *store.Tx) error { return a.events.In(tx).Put(event("u1", 5)) },
		func(tx *store.Tx) error { return a.events.In(tx).Drop(trivet.EventPrefix("machine/u1", "u1")) },
		func(tx *store.Tx) error { return a.events.In(tx).Put(event("u1", 6)) },
	} {
		h.update(t, func(tx *store.Tx) error { return errors.Join(h.create(fmt.Sprint("m", i))(tx), do(tx)) })
		h.waiting(t, i+1)
	}
	if failed := h.results(t, 4); failed != nil {
		t.Fatal(failed)
	}
	if n := g.sent.Load(); n != 3 {
		t.Errorf("%d transactions were sent; want 3", n)
	}
}
