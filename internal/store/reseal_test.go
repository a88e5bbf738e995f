package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// keyed is a head with a cipher whose keys a test changes.
type keyed struct {
	*head
	*keyring.Cipher
	ring keyring.Ring
}

func openKeyed(t *testing.T, m *cluster.Member, name string, r keyring.Ring) *keyed {
	t.Helper()
	cipher := keyring.NewCipher(r)
	return &keyed{open(t, m.Client(), store.Options{Head: name, Cipher: cipher}), cipher, r}
}

// add gives a head a key.
func (h *keyed) add(k keyring.Key) {
	h.ring = h.ring.With(k)
	h.Use(h.ring)
}

// reseal makes passes until one finds nothing, and returns its last page.
func (h *keyed) reseal(t *testing.T) (last store.ResealPage) {
	t.Helper()
	for from, found, passes := "", 0, 0; ; {
		p, err := h.Reseal(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		if p.Read > 100 || p.Written > p.Found {
			t.Fatalf("a step: %+v", p)
		}
		found += p.Found
		if from = p.Next; from != "" {
			continue
		}
		if passes++; found == 0 {
			return p
		}
		if found = 0; passes > 20 {
			t.Fatal("values are found under the old key after 20 passes")
		}
	}
}

// storedKeys returns how many of the values in the store are under each key.
func storedKeys(t *testing.T, m *cluster.Member) map[string]int {
	t.Helper()
	resp, err := m.Client().Get(t.Context(), "/trivet", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]int{}
	for _, kv := range resp.Kvs {
		id, _ := keyring.IDOf(kv.Value)
		keys[id.String()]++
	}
	return keys
}

// Values are encrypted again in pages, those of the log and the store's own too. For readers nothing changes: neither
// the revision of a record, by which a conditional write still succeeds, nor the order of the log; and a lease keeps
// its holder. No watch gets an event. Afterwards a head without the old key reads everything.
func TestReseal(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	h := openKeyed(t, m, "head0", keyring.Of(old))
	far := openKeyed(t, m, "head1", keyring.Of(old))
	const records = 250
	for i := range records {
		h.must(t, func(tx *store.Tx) error {
			tx.Append("log", []byte(entry(i)))
			return h.machines.In(tx).Create(machine(fmt.Sprint("m", i), fmt.Sprint("r", i%3)))
		})
	}
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Put(machine("m7", "moved")) })
	m7, err := h.machines.Get("m7")
	if err != nil {
		t.Fatal(err)
	}
	log, _ := texts(t, h.Store, "", 2*records)
	before := h.Revision()
	watch := far.synced(t).Watch(0)
	err = h.WithLease(t.Context(), "x", time.Hour, func(ctx context.Context, l *store.Lease) error {
		h.add(next)
		far.add(next)
		h.must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
		last := h.reseal(t)
		if keys := storedKeys(t, m); len(keys) != 1 || keys[next.ID().String()] < 2*records {
			t.Errorf("the values are under the keys %v", keys)
		}
		h.Use(keyring.Of(next))
		far.Use(keyring.Of(next))
		if h.ValuesUnder(old.ID()) != 0 || far.synced(t).ValuesUnder(next.ID()) < records {
			t.Errorf("the copy has %d values under the old key", h.ValuesUnder(old.ID()))
		}
		if err := m.Compact(ctx, last.Revision); err != nil {
			t.Error(err)
		}
		h.must(t, func(tx *store.Tx) error { return l.Check(tx) })
		h.must(t, func(tx *store.Tx) error {
			return errors.Join(l.Check(tx), h.machines.In(tx).Create(machine("held", "")))
		})
		return nil
	})
	if err != nil {
		t.Errorf("under the lease: %v", err)
	}
	again := open(t, m.Client(), store.Options{Cipher: keyring.NewCipher(keyring.Of(next))})
	for _, s := range []*head{h.head, far.head, again} {
		s.synced(t)
		if now, err := s.machines.Get("m7"); err != nil || now.Revision != m7.Revision || now.Spec.Rack != "moved" {
			t.Errorf("m7 is %+v, %v; was at revision %d", now, err, m7.Revision)
		}
		if n := s.machines.Len(); n != records+1 || s.Refused() != 0 {
			t.Errorf("%d records, %d refused", n, s.Refused())
		}
		if now, _ := texts(t, s.Store, "", 2*records); strings.Join(now, "") != strings.Join(log, "") {
			t.Error("the log has changed")
		}
	}
	if events := nextAll(t, far.head, watch); len(events) != 2 || events[0].Name != "held" {
		for _, e := range events {
			t.Errorf("a watch got %s at %d: %s", e.Name, e.Revision, e.JSON())
		}
	}
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Put(m7) }) // unchanged: compares its revision
	m7.Spec.Rack = "changed"
	if rev := h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Put(m7) }); rev <= before {
		t.Errorf("written at %d", rev)
	}
	if now, err := h.machines.Get("m7"); err != nil || now.Revision == m7.Revision {
		t.Errorf("the change has revision %d, %v", now.Revision, err)
	}
}

// Writers of the same records, on a head that learns of the new key late, lose no update while values are encrypted
// again, and nothing is written under the old key after the switch.
func TestResealAmongWriters(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	heads := []*keyed{openKeyed(t, m, "head0", keyring.Of(old)), openKeyed(t, m, "head1", keyring.Of(old))}
	const records, writes = 20, 400
	for i := range records {
		heads[0].put(t, fmt.Sprint("m", i), "0")
	}
	for _, h := range heads {
		h.add(next)
	}
	var writers sync.WaitGroup
	for w, h := range heads {
		writers.Go(func() {
			for i := range writes {
				_, err := h.Update(t.Context(), func(tx *store.Tx) error {
					m, err := h.machines.In(tx).Get(fmt.Sprint("m", i%records))
					if err != nil {
						return err
					}
					m.Spec.Rack += fmt.Sprint(w)
					return h.machines.In(tx).Put(m)
				})
				if err != nil {
					t.Errorf("write %d: %v", i, err)
					return
				}
			}
		})
	}
	heads[0].must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	heads[0].reseal(t)
	if keys := storedKeys(t, m); len(keys) != 1 || keys[next.ID().String()] == 0 {
		t.Errorf("the values are under the keys %v", keys)
	}
	writers.Wait()
	if keys := storedKeys(t, m); len(keys) != 1 {
		t.Errorf("afterwards the values are under the keys %v", keys)
	}
	for i := range records {
		got, err := heads[0].synced(t).machines.Get(fmt.Sprint("m", i))
		if err != nil || len(got.Spec.Rack) != 1+2*writes/records {
			t.Errorf("m%d has the updates %q, %v", i, got.Spec.Rack, err)
		}
	}
}

// A value that a writer changes after it was read is left to the writer; the others of the page are encrypted again.
func TestResealComparesEachValue(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	other := openKeyed(t, m, "head1", keyring.Of(old))
	for i := range 5 {
		other.put(t, fmt.Sprint("m", i), "r")
	}
	other.add(next)
	other.must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	link := &interposed{KV: m.Client().KV}
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Watcher = link, m.Client().Watcher
	h := &keyed{open(t, client, store.Options{Head: "head0", Cipher: other.Cipher}), other.Cipher, other.ring}
	link.before = func() { other.put(t, "m3", "changed") }
	p, err := h.Reseal(t.Context(), "")
	if err != nil || p.Found < 5 || p.Written != p.Found-1 {
		t.Errorf("the page is %+v, %v", p, err)
	}
	if m3, err := h.synced(t).machines.Get("m3"); err != nil || m3.Spec.Rack != "changed" {
		t.Errorf("m3 is %+v, %v", m3, err)
	}
	h.reseal(t)
	if keys := storedKeys(t, m); len(keys) != 1 {
		t.Errorf("the values are under the keys %v", keys)
	}
}

// interposed calls before once, before the next transaction.
type interposed struct {
	clientv3.KV
	before func()
}

func (i *interposed) Txn(ctx context.Context) clientv3.Txn {
	if do := i.before; do != nil {
		i.before = nil
		do()
	}
	return i.KV.Txn(ctx)
}

// A head that does not have the active key writes nothing. With the key it does.
func TestHeadWithoutTheActiveKeyWritesNothing(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	late := openKeyed(t, m, "head1", keyring.Of(old))
	h := openKeyed(t, m, "head0", keyring.Of(old, next))
	h.must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	create := func(name string) error {
		_, err := late.Update(t.Context(), func(tx *store.Tx) error {
			return late.machines.In(tx).Create(machine(name, ""))
		})
		return err
	}
	if err := create("m1"); !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), next.ID().String()) {
		t.Errorf("without the active key: %v", err)
	}
	if _, err := h.synced(t).machines.Get("m1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("it was written: %v", err)
	}
	unknown := keyring.New()
	if _, err := h.Update(t.Context(), func(tx *store.Tx) error { return tx.SetActive(unknown.ID()) }); err == nil {
		t.Error("a key that its head does not have became active")
	}
	late.add(next)
	if err := create("m2"); err != nil {
		t.Error(err)
	}
}

// A forged value that claims to be under the old key is left, and does not keep a pass from its end.
func TestResealLeavesForgedValues(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	h, w := openKeyed(t, m, "head0", keyring.Of(old)), &witness{t, m.Client()}
	h.put(t, "m1", "r1")
	w.put("/trivet/machine/m2", w.value("/trivet/machine/m1"))
	h.add(next)
	h.must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	h.reseal(t)
	if keys := storedKeys(t, m); keys[old.ID().String()] != 1 {
		t.Errorf("the values are under the keys %v", keys)
	}
	if _, err := h.machines.Get("m2"); !errors.Is(err, store.ErrRefused) {
		t.Errorf("the forged value: %v", err)
	}
}

// Who follows the log, or resumes a watch from before, gets nothing twice.
func TestResealedIsNotFollowed(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	h := openKeyed(t, m, "head0", keyring.Of(old, next))
	add := func(n int) int64 {
		return h.must(t, func(tx *store.Tx) error {
			tx.Append("log", []byte(entry(n)))
			return nil
		})
	}
	from := h.put(t, "m1", "r1") - 1
	add(1)
	h.must(t, func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	h.reseal(t)
	add(2)
	ctx, cancel := context.WithCancel(t.Context())
	var got []string
	_, err := h.FollowCold(ctx, "log", from, func(e store.ColdEntry) {
		if got = append(got, string(e.Doc)); string(e.Doc) == entry(2) {
			cancel()
		}
	})
	late := openKeyed(t, m, "head1", keyring.Of(old, next))
	if events := nextAll(t, late.head, late.Watch(from)); len(events) != 2 || events[0].Name != "m1" {
		t.Errorf("the watch got %d events", len(events))
	}
	if !errors.Is(err, context.Canceled) || strings.Join(got, " ") != entry(1)+" "+entry(2) {
		t.Errorf("followed %v, %v", got, err)
	}
}
