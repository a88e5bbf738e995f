package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

var errRackFull = errors.New("the rack is full")

// add creates a machine in a rack, which holds at most five.
func (h *head) add(tx *store.Tx, name, rack string) error {
	if err := h.machines.In(tx).Put(machine(name, rack)); err != nil {
		return err
	}
	if len(h.machines.In(tx).ListBy("rack", rack)) > 5 {
		return errRackFull
	}
	return nil
}

func TestListsOfConcurrentTransactions(t *testing.T) {
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
			case !errors.Is(err, errRackFull):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(heads[0].machines.ListBy("rack", "r1")); n != 5 || fit.Load() != 5 {
		t.Errorf("%d machines, %d transactions committed, want 5", n, fit.Load())
	}
}

func TestListsHaveOwnWrites(t *testing.T) {
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
		"one more":                    {func(tx *store.Tx) error { return h.add(tx, "m5", "r1") }, errRackFull},
		"another rack":                {func(tx *store.Tx) error { return h.add(tx, "m5", "r2") }, nil},
		"one that is counted already": {func(tx *store.Tx) error { return h.add(tx, "m1", "r1") }, nil},
		"a change of rack":            {func(tx *store.Tx) error { return h.add(tx, "m5", "r1") }, errRackFull},
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

// A list that became empty is compared as well as one that never had records.
func TestEmptyListIsCompared(t *testing.T) {
	t.Parallel()
	_, heads := twoHeads(t)
	for _, rack := range []string{"never had records", "had one"} {
		if rack == "had one" {
			heads[1].must(t, func(tx *store.Tx) error { return heads[1].machines.In(tx).Put(machine("first", rack)) })
			heads[1].must(t, func(tx *store.Tx) error { return heads[1].machines.In(tx).Delete("first") })
		}
		var found []int
		heads[1].must(t, func(tx *store.Tx) error {
			found = append(found, len(heads[1].machines.In(tx).ListBy("rack", rack)))
			if len(found) == 1 {
				heads[0].must(t, func(tx *store.Tx) error { return heads[0].machines.In(tx).Put(machine("rival", rack)) })
			}
			return heads[1].machines.In(tx).Put(machine("m1", "r9"))
		})
		if !slices.Equal(found, []int{0, 1}) {
			t.Errorf("%s: the runs found %v machines", rack, found)
		}
		heads[1].must(t, func(tx *store.Tx) error { return heads[1].machines.In(tx).Put(machine("rival", "r9")) })
	}
}

// Transactions that add to a list do not conflict, whatever the others add.
func TestAddingToAListConflictsWithNone(t *testing.T) {
	t.Parallel()
	_, heads := twoHeads(t)
	runs := 0
	heads[1].must(t, func(tx *store.Tx) error {
		if runs++; runs == 1 {
			heads[0].must(t, func(tx *store.Tx) error { return heads[0].machines.In(tx).Put(machine("m1", "r1")) })
		}
		return heads[1].machines.In(tx).Put(machine("m2", "r1"))
	})
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}
