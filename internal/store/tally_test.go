package store_test

import (
	"errors"
	"maps"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// openTallied starts a store with a tally of its machines by rack.
func openTallied(t *testing.T, client *clientv3.Client) (*head, *store.Tally[trivet.Machine]) {
	t.Helper()
	h := newHead(client, store.Options{})
	racks := store.NewTally(h.machines, func(m *trivet.Machine) string { return m.Spec.Rack })
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, racks
}

// Records are counted by key with each change, and again when a copy is loaded.
func TestTally(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, racks := openTallied(t, m.Client())
	for name, rack := range map[string]string{"m1": "r1", "m2": "r1", "m3": "r1", "m4": "r2", "m5": "", "m6": "r3"} {
		h.put(t, name, rack)
	}
	h.put(t, "m2", "r2")
	h.put(t, "m4", "r2")
	h.must(t, func(tx *store.Tx) error {
		return errors.Join(h.machines.In(tx).Delete("m1"), h.machines.In(tx).Delete("m6"))
	})
	h.synced(t)
	want := map[string]int{"r1": 1, "r2": 2}
	if got := racks.Counts(); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	_, loaded := openTallied(t, m.Client())
	if got := loaded.Counts(); !maps.Equal(got, want) {
		t.Errorf("counted %v in a copy that was loaded, want %v", got, want)
	}
}

// What a transaction leaves for after its commit runs once, of the run that was committed only.
func TestAfterCommit(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	h.put(t, "m1", "r1")
	var done []int
	run := 0
	h.must(t, func(tx *store.Tx) error {
		run++
		of := run
		tx.AfterCommit(func() { done = append(done, of) })
		if _, err := h.machines.In(tx).Get("m1"); err != nil {
			return err
		}
		if run == 1 { // so that the commit fails
			h.put(t, "m1", "r2")
		}
		return h.machines.In(tx).Put(machine("m2", ""))
	})
	if len(done) != 1 || done[0] != 2 {
		t.Errorf("after two runs, of which the second was committed, those of %v have run", done)
	}
	refused := errors.New("refused")
	_, err := h.Update(t.Context(), func(tx *store.Tx) error {
		tx.AfterCommit(func() { done = append(done, 0) })
		return errors.Join(h.machines.In(tx).Put(machine("m3", "")), refused)
	})
	if !errors.Is(err, refused) || len(done) != 1 {
		t.Errorf("a transaction that ended in %v: those of %v have run", err, done)
	}
}
