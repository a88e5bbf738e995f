package collect

import (
	"errors"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The record of a head stays for a while after its removal, and goes then with the keys that the head had. Members
// stay.
func TestRecordsOfRemovedHeads(t *testing.T) {
	t.Parallel()
	m, now := storetest.Member(t), time.Now()
	tables := storetest.On(t, m, store.Options{Head: "head0"}, state.New)
	heads := map[string]trivet.HeadStatus{
		"head0": {State: trivet.HeadMember, Removed: now.Add(-2 * keepHead)},
		"head1": {State: trivet.HeadRemoved, Removed: now.Add(-keepHead)},
		"head2": {State: trivet.HeadRemoved, Removed: now.Add(time.Minute - keepHead)},
		"head3": {State: trivet.HeadRemoved}, // by an earlier version
		"head4": {State: trivet.HeadRemoved, Removed: now.Add(100 * keepHead)},
	}
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) (err error) {
		for name, status := range heads {
			err = errors.Join(err, tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name}, Status: status}))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range heads { // a transaction that only deletes leaves a key of its head
		of := storetest.On(t, m, store.Options{Head: name}, state.New)
		for _, do := range []func(store.View[trivet.Account]) error{
			func(a store.View[trivet.Account]) error {
				return a.Put(&trivet.Account{Meta: trivet.Meta{Name: "a"}, Spec: trivet.AccountSpec{Role: trivet.AccountViewer}})
			},
			func(a store.View[trivet.Account]) error { return a.Delete("a") },
		} {
			if _, err := of.Store.Update(t.Context(), func(tx *store.Tx) error { return do(of.Accounts.In(tx)) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := New(Config{Tables: tables})
	expect := func(at time.Time, want ...string) {
		t.Helper()
		if err := c.sweep(t.Context(), keyHeads, at); err != nil {
			t.Fatal(err)
		}
		if got := tables.Heads.Names(); !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
		for _, name := range want {
			delete(heads, name)
		}
		keys, err := m.Client().Get(t.Context(), "/trivet/-", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range keys.Kvs {
			for name := range heads {
				if string(kv.Key) == "/trivet/-tx/"+name || string(kv.Key) == "/trivet/-guard/"+name {
					t.Errorf("the key %s of a head that is gone is left", kv.Key)
				}
			}
		}
		for _, name := range want {
			heads[name] = trivet.HeadStatus{}
		}
	}
	expect(now, "head0", "head2", "head3", "head4")
	expect(now.Add(keepHead-time.Minute), "head0", "head3", "head4")
	expect(now.Add(keepHead), "head0")
}
