package store_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// add creates a machine in a rack, which holds at most five.
func (h *head) add(tx *store.Tx, name, rack string) error {
	if err := h.machines.In(tx).Put(machine(name, rack)); err != nil {
		return err
	}
	return h.machines.In(tx).Limit("rack", rack, 5)
}

func TestLimitWithConcurrentTransactions(t *testing.T) {
	t.Parallel()
	_, heads := twoHeads(t)
	var fit atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		h := heads[i%2]
		wg.Go(func() {
			_, err := h.Update(t.Context(), func(tx *store.Tx) error { return h.add(tx, fmt.Sprint("m", i), "r1") })
			switch {
			case err == nil:
				fit.Add(1)
			case !errors.Is(err, store.ErrLimit):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(heads[0].machines.ListBy("rack", "r1")); n != 5 || fit.Load() != 5 {
		t.Errorf("%d machines, %d transactions committed, want 5", n, fit.Load())
	}
}

func TestLimitCountsOwnWrites(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	h.must(t, func(tx *store.Tx) error { // the limit is checked after each of the five
		for i := range 5 {
			if err := h.add(tx, fmt.Sprint("m", i), "r1"); err != nil {
				return err
			}
		}
		return nil
	})
	for name, c := range map[string]struct {
		do   func(tx *store.Tx) error
		want error
	}{
		"one more":                    {func(tx *store.Tx) error { return h.add(tx, "m5", "r1") }, store.ErrLimit},
		"another rack":                {func(tx *store.Tx) error { return h.add(tx, "m5", "r2") }, nil},
		"one that is counted already": {func(tx *store.Tx) error { return h.add(tx, "m1", "r1") }, nil},
		"a change of rack":            {func(tx *store.Tx) error { return h.add(tx, "m5", "r1") }, store.ErrLimit},
		"a replacement": {func(tx *store.Tx) error {
			return errors.Join(h.machines.In(tx).Delete("m0"), h.add(tx, "m6", "r1"))
		}, nil},
		"a rack with the same prefix": {func(tx *store.Tx) error { return h.add(tx, "m7", "r11") }, nil},
	} {
		before := h.machines.Len()
		if _, err := h.Update(t.Context(), c.do); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if c.want != nil && h.machines.Len() != before {
			t.Errorf("%s: refused but written", name)
		}
	}
	if n := len(h.machines.ListBy("rack", "r1")); n != 5 {
		t.Errorf("%d machines in the rack, want 5", n)
	}
}
