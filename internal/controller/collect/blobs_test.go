package collect

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// noBlobs has none that is unreferenced.
type noBlobs struct{}

func (noBlobs) Unreferenced() ([]blob.Held, error)       { return nil, nil }
func (noBlobs) Collect(_ blob.Digest, _ time.Time) error { return nil }

// fakeBlobs are unreferenced blobs by the time of their last use.
type fakeBlobs map[blob.Digest]time.Time

func (f fakeBlobs) Unreferenced() (all []blob.Held, _ error) {
	for d, used := range f {
		all = append(all, blob.Held{Digest: d, Bytes: 1 << 20, Used: used})
	}
	return all, nil
}

func (f fakeBlobs) Collect(d blob.Digest, since time.Time) error {
	if f[d].After(since) {
		return trivet.ErrConflict
	}
	delete(f, d)
	return nil
}

// A blob is removed when it was not used for a week and the head has seen that for an hour: a clock that jumps does
// not remove what was uploaded a moment ago. Without a quorum nothing is removed.
func TestUnusedBlobs(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	tables := storetest.On(t, m, store.Options{}, state.New)
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head0"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	old, fresh, used, last := blob.Digest{1}, blob.Digest{2}, blob.Digest{3}, blob.Digest{4}
	held := fakeBlobs{old: now.Add(-keepBlob), fresh: now, used: now.Add(-keepBlob)}
	c := New(Config{Tables: tables, Head: "head0", Blobs: held})
	sweep := func(at time.Time, want ...blob.Digest) {
		t.Helper()
		if err := c.sweep(t.Context(), keyBlobs, at); err != nil {
			t.Fatal(err)
		}
		left := maps.Clone(held)
		for _, d := range want {
			if _, ok := left[d]; !ok {
				t.Errorf("%v was removed", d[0])
			}
			delete(left, d)
		}
		for d := range left {
			t.Errorf("%v is left", d[0])
		}
	}
	sweep(now, old, fresh, used)
	sweep(now.Add(confirmBlob-time.Minute), old, fresh, used)
	held[used] = now.Add(confirmBlob - time.Second)
	sweep(now.Add(confirmBlob), fresh, used)
	e, err := tables.Events.Get(t.Context(), "head.head0.blobs")
	if err != nil || e.Spec.Reason != trivet.ReasonBlobsCollected ||
		!strings.Contains(e.Spec.Message, "1 blobs of 1 MiB") {
		t.Errorf("the event is %+v, %v", e, err)
	}
	jumped := now.Add(2 * keepBlob)
	sweep(jumped, fresh, used)

	delete(held, fresh)
	delete(held, used)
	held[last] = now.Add(-keepBlob)
	sweep(now, last)
	m.Close()
	err = c.sweep(t.Context(), keyBlobs, now.Add(2*confirmBlob))
	if !errors.Is(err, trivet.ErrUnavailable) || len(held) != 1 {
		t.Errorf("without a quorum: %v, %d left", err, len(held))
	}
}

// A sweep removes a bounded number of blobs.
func TestUnusedBlobsAreBounded(t *testing.T) {
	t.Parallel()
	tables, now := storetest.New(t, state.New), time.Now()
	held := fakeBlobs{}
	for i := range 2*maxBlobs + 1 {
		held[blob.Digest{byte(i), byte(i >> 8)}] = now.Add(-keepBlob)
	}
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head0"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Config{Tables: tables, Head: "head0", Blobs: held})
	for _, want := range []int{2*maxBlobs + 1, maxBlobs + 1, 1, 0} {
		if err := c.sweep(t.Context(), keyBlobs, now); err != nil || len(held) != want {
			t.Fatalf("%d are left, want %d: %v", len(held), want, err)
		}
		now = now.Add(confirmBlob)
	}
}
