package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// head is a store over a real member, with one table.
type head struct {
	*store.Store
	machines *store.Table[trivet.Machine]
}

func open(t testing.TB, client *clientv3.Client, opts store.Options) *head {
	t.Helper()
	h := newHead(client, opts)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func newHead(client *clientv3.Client, opts store.Options) *head {
	if opts.Cipher == nil {
		opts.Cipher = storetest.Cipher()
	}
	opts.Timeout = cmp.Or(opts.Timeout, 15*time.Second) // many of these tests run at the same time, with -race
	s := store.New(client, opts)
	return &head{Store: s, machines: store.NewTable(s,
		store.Index[trivet.Machine]{Name: "rack", Keys: func(m *trivet.Machine) []string {
			return []string{m.Spec.Rack}
		}, Compared: true},
		store.Index[trivet.Machine]{Name: "mac", Keys: func(m *trivet.Machine) (macs []string) {
			for _, n := range m.Spec.NICs {
				macs = append(macs, n.MAC)
			}
			return macs
		}},
	)}
}

func machine(name, rack string) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{Rack: rack}}
}

func (h *head) must(t testing.TB, do func(tx *store.Tx) error) int64 {
	t.Helper()
	rev, err := h.Update(t.Context(), do)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestWritesAreReadImmediately(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	rev := h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "r1")) })
	m, err := h.machines.Get("m1")
	if err != nil || m.Revision != rev || m.Generation != 1 || m.UID == "" || m.Kind != "Machine" {
		t.Fatalf("got %+v, %v; want revision %d", m, err, rev)
	}
	h.must(t, func(tx *store.Tx) error {
		m, err := h.machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Spec.Rack, m.Spec.NICs = "r2", []trivet.NIC{{MAC: "52:54:00:00:00:01"}}
		return h.machines.In(tx).Put(m)
	})
	found := h.machines.ListBy("mac", "52:54:00:00:00:01")
	if len(found) != 1 || found[0].Spec.Rack != "r2" || found[0].Generation != 2 || found[0].UID != m.UID {
		t.Errorf("by index: %+v", found)
	}
	if m.Spec.Rack != "r1" {
		t.Error("a record that was read before has changed")
	}
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") })
	if _, err := h.machines.Get("m1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
	if found := h.machines.ListBy("mac", "52:54:00:00:00:01"); len(found) != 0 {
		t.Errorf("the index still finds %v", found)
	}
}

func TestErrorKinds(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "")) })
	mine := errors.New("mine")
	m := h.machines
	for name, c := range map[string]struct {
		do   func(tx *store.Tx) error
		want error
	}{
		"exists":    {func(tx *store.Tx) error { return m.In(tx).Create(machine("m1", "")) }, trivet.ErrExists},
		"not found": {func(tx *store.Tx) error { return m.In(tx).Delete("m2") }, trivet.ErrNotFound},
		"invalid":   {func(tx *store.Tx) error { return m.In(tx).Put(machine("../m", "")) }, trivet.ErrInvalid},
		"its own":   {func(*store.Tx) error { return mine }, mine},
		"too many": {func(tx *store.Tx) error {
			for i := range store.MaxOps + 1 {
				if err := h.machines.In(tx).Put(machine(fmt.Sprint("x", i), "")); err != nil {
					return err
				}
			}
			return nil
		}, trivet.ErrTooLarge},
	} {
		if _, err := h.Update(t.Context(), c.do); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if h.machines.Len() != 1 {
		t.Errorf("refused transactions left %d machines, want 1", h.machines.Len())
	}
}

func TestConcurrentWritersLoseNoUpdate(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "")) })
	const writers, each = 8, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				_, err := h.Update(t.Context(), func(tx *store.Tx) error {
					m, err := h.machines.In(tx).Get("m1")
					if err != nil {
						return err
					}
					m.Status.Epoch++
					return h.machines.In(tx).Put(m)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if m, err := h.machines.Get("m1"); err != nil || m.Status.Epoch != writers*each || m.Generation != 1 {
		t.Errorf("%+v, %v; want epoch %d", m, err, writers*each)
	}
}

func TestRestartKeepsRecordsAndIndexes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := storetest.MemberWith(t, cluster.Config{Dir: dir})
	h := open(t, m.Client(), store.Options{})
	one := machine("m1", "")
	one.Spec.NICs = []trivet.NIC{{MAC: "52:54:00:00:00:01"}}
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(one) })
	h.Close()
	m.Close()
	h = open(t, storetest.MemberWith(t, cluster.Config{Dir: dir}).Client(), store.Options{})
	if found := h.machines.ListBy("mac", "52:54:00:00:00:01"); len(found) != 1 {
		t.Errorf("after a restart the index finds %v", found)
	}
}
