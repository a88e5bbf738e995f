package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// witness is a party that may write to the store and has no key.
type witness struct {
	t *testing.T
	*clientv3.Client
}

func (w *witness) put(key, value string) {
	w.t.Helper()
	if _, err := w.Put(w.t.Context(), key, value); err != nil {
		w.t.Fatal(err)
	}
}

func (w *witness) value(key string) string {
	w.t.Helper()
	resp, err := w.Get(w.t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		w.t.Fatal(err, resp)
	}
	return string(resp.Kvs[0].Value)
}

func (w *witness) delete(key string) {
	w.t.Helper()
	if _, err := w.Delete(w.t.Context(), key); err != nil {
		w.t.Fatal(err)
	}
}

func (h *head) synced(t *testing.T) *head {
	t.Helper()
	if err := h.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

// No text of a record is in the store as such, and none of the store's own keys has a value that is not sealed.
func TestWitnessCannotRead(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h := open(t, m.Client(), store.Options{Head: "head0"})
	h.put(t, "m1", "correct-horse-battery")
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m2", "")) })
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m2") })
	h.must(t, func(tx *store.Tx) error {
		return h.machines.In(tx).Create(machine("m3", "r1")) // with the key of a list
	})
	err := h.WithLease(t.Context(), "x", 1<<40, func(context.Context, *store.Lease) error {
		resp, err := m.Client().Get(t.Context(), "", clientv3.WithPrefix())
		if err != nil || len(resp.Kvs) < 6 {
			t.Fatalf("%v, %v", err, resp)
		}
		for _, kv := range resp.Kvs {
			if _, ok := keyring.IDOf(kv.Value); !ok || bytes.Contains(kv.Value, []byte(`"`+"kind")) ||
				bytes.Contains(kv.Value, []byte("correct-horse-battery")) {
				t.Errorf("%s is %q", kv.Key, kv.Value)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What a witness can put is never a record: neither in the copy of a head that follows nor of one that starts.
func TestWitnessCannotForge(t *testing.T) {
	t.Parallel()
	const one, two = "/trivet/machine/m1", "/trivet/machine/m2"
	for name, forge := range map[string]func(w *witness, h *head) (key string){
		"JSON": func(w *witness, _ *head) string {
			w.put(two, `{"kind":"Machine","name":"m2","spec":{},"tx":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`)
			return two
		},
		"empty": func(w *witness, _ *head) string { w.put(two, ""); return two },
		"a key of its own": func(w *witness, _ *head) string {
			box := keyring.NewCipher(keyring.Of(keyring.New())).Seal([]byte(`{"kind":"Machine"}`), []byte(two))
			w.put(two, string(box))
			return two
		},
		"another record's value": func(w *witness, _ *head) string { w.put(two, w.value(one)); return two },
		"the same value again":   func(w *witness, _ *head) string { w.put(one, w.value(one)); return one },
		"an older value": func(w *witness, h *head) string {
			old := w.value(one)
			h.must(w.t, func(tx *store.Tx) error { return h.machines.In(tx).Put(machine("m1", "r2")) })
			w.put(one, old)
			return one
		},
		"a changed value": func(w *witness, _ *head) string {
			value := []byte(w.value(one))
			value[len(value)-20] ^= 1
			w.put(one, string(value))
			return one
		},
		"a later value of a key that it deleted": func(w *witness, h *head) string {
			first := w.value(one)
			h.must(w.t, func(tx *store.Tx) error { return h.machines.In(tx).Put(machine("m1", "r2")) })
			second := w.value(one)
			w.delete(one)
			w.put(one, first)
			w.put(one, second)
			return one
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := storetest.Member(t)
			var log bytes.Buffer
			h := open(t, m.Client(), store.Options{Logger: logger(&log), Metrics: prometheus.NewRegistry()})
			h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "r1")) })
			h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m3", "r1")) })
			watch := h.Watch(h.Revision())
			w := &witness{t, m.Client()}
			key := forge(w, h)
			h.synced(t).refuses(t, strings.TrimPrefix(key, "/trivet/machine/"))
			if text := log.String(); !strings.Contains(text, "refused a stored value") || !strings.Contains(text, key) {
				t.Errorf("the log is %q", text)
			}
			for _, e := range nextAll(t, h, watch) {
				if e.Name == key[len("/trivet/machine/"):] && e.Record() != nil && e.Revision == h.Revision() {
					t.Errorf("watchers got %s", e.JSON())
				}
			}
			restarted := open(t, m.Client(), store.Options{})
			restarted.refuses(t, strings.TrimPrefix(key, "/trivet/machine/"))
			h.repaired(t, strings.TrimPrefix(key, "/trivet/machine/"))
		})
	}
}

// refuses wants a record that cannot be read, that no transaction writes over, and that no list has, beside others.
func (h *head) refuses(t *testing.T, name string) {
	t.Helper()
	if h.Refused() != 1 {
		t.Errorf("%d values are refused, want 1", h.Refused())
	}
	if m, err := h.machines.Get(name); !errors.Is(err, store.ErrRefused) {
		t.Errorf("read %+v, %v", m, err)
	}
	if raw, err := h.Get("Machine", name); !errors.Is(err, store.ErrRefused) {
		t.Errorf("read %s, %v", raw.JSON(), err)
	}
	for _, m := range append(h.machines.List(), h.machines.ListBy("rack", "r1")...) {
		if m.Name == name {
			t.Errorf("listed %+v", m)
		}
	}
	if all, _ := h.List("Machine", "", "", 0); len(all) == 0 || len(all) > 3 {
		t.Errorf("listed %d records", len(all))
	}
	if _, err := h.machines.Get("m3"); err != nil {
		t.Errorf("another record: %v", err)
	}
	for what, do := range map[string]func(tx *store.Tx) error{
		"create": func(tx *store.Tx) error { return h.machines.In(tx).Create(machine(name, "")) },
		"put":    func(tx *store.Tx) error { return h.machines.In(tx).Put(machine(name, "")) },
		"patch": func(tx *store.Tx) error {
			doc, _, err := tx.Raw("Machine", name)
			return errors.Join(err, tx.PutRaw("Machine", name, append(doc, ' ')))
		},
		"put raw": func(tx *store.Tx) error { return tx.PutRaw("Machine", name, []byte(`{"kind":"Machine"}`)) },
	} {
		if _, err := h.Update(t.Context(), do); !errors.Is(err, store.ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// repaired deletes the record and creates it again, as the hint says.
func (h *head) repaired(t *testing.T, name string) {
	t.Helper()
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete(name) })
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine(name, "r9")) })
	if m, err := h.machines.Get(name); err != nil || m.Spec.Rack != "r9" || h.Refused() != 0 {
		t.Errorf("%+v, %v, %d values are refused", m, err, h.Refused())
	}
}

// nextAll returns the events up to the head's revision.
func nextAll(t *testing.T, h *head, w *store.Watcher) (all []*store.Event) {
	t.Helper()
	h.put(t, "last", "")
	for w.Revision() < h.Revision() {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events...)
	}
	return all
}

// What remains: after a deletion, the first value of a record is valid again. It is stated in docs/security.md.
func TestWitnessCanReplayTheFirstValue(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, w := open(t, m.Client(), store.Options{}), &witness{t, m.Client()}
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("m1", "r1")) })
	old := w.value("/trivet/machine/m1")
	w.delete("/trivet/machine/m1")
	w.put("/trivet/machine/m1", old)
	if m, err := h.synced(t).machines.Get("m1"); err != nil || m.Spec.Rack != "r1" {
		t.Errorf("%+v, %v", m, err)
	}
}

// Values under a key that the head does not have are not read as records, and a head that can read none does not start.
func TestOtherKeys(t *testing.T) {
	t.Parallel()
	m, old, next := storetest.Member(t), keyring.New(), keyring.New()
	at := func(r keyring.Ring) store.Options { return store.Options{Cipher: keyring.NewCipher(r)} }
	h := open(t, m.Client(), at(keyring.Of(old)))
	h.put(t, "m1", "r1")
	err := newHead(m.Client(), at(keyring.Of(next))).Start(t.Context())
	if !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), old.ID().String()) ||
		!strings.Contains(err.Error(), next.ID().String()) {
		t.Errorf("a head with another key started: %v", err)
	}
	both := open(t, m.Client(), at(keyring.Of(next, old)))
	both.put(t, "m2", "r2")
	h.synced(t)
	if _, err := h.machines.Get("m2"); !errors.Is(err, keyring.ErrKey) {
		t.Errorf("a head without the new key read its value: %v", err)
	}
	if m, err := both.machines.Get("m1"); err != nil || m.Spec.Rack != "r1" {
		t.Errorf("a head with both keys read %+v, %v", m, err)
	}
}

// A flood of forged values is counted, and gets few lines of the log.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	var log bytes.Buffer
	metrics := prometheus.NewRegistry()
	h, w := open(t, m.Client(), store.Options{Logger: logger(&log), Metrics: metrics}), &witness{t, m.Client()}
	for i := range 100 {
		w.put(fmt.Sprint("/trivet/account/a", i), "{}")
	}
	h.synced(t)
	if n := strings.Count(log.String(), "\n"); n > 20 {
		t.Errorf("%d lines of the log", n)
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "trivet_store_refusals_total" && f.GetMetric()[0].GetCounter().GetValue() == 100 {
			return
		}
	}
	t.Errorf("the refusals are not counted: %v", families)
}

// A value that changes in one member's database is not read there, and no write that is based on it reaches the others.
func TestDamageOfOneDatabaseDoesNotSpread(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Name: "head0", Heartbeat: storetest.Heartbeat})
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, m.Client(), store.Options{})
	h.put(t, "m1", "r1")
	h.put(t, "m3", "r1")
	h.Close()
	m.Close()
	changeDatabase(t, dir, "/trivet/machine/m1")
	again := storetest.MemberWith(t, cluster.Config{Dir: dir})
	open(t, again.Client(), store.Options{}).refuses(t, "m1")
}

// changeDatabase changes one bit of a key's newest value in the database of a member that does not run.
func changeDatabase(t *testing.T, dir, key string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "etcd/member/snap/db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("key")).Cursor()
		for rev, kv := c.Last(); rev != nil; rev, kv = c.Prev() {
			if bytes.Contains(kv, []byte(key)) {
				changed := bytes.Clone(kv)
				changed[len(changed)-1] ^= 1 // the value is the last field
				return tx.Bucket([]byte("key")).Put(rev, changed)
			}
		}
		return errors.New("the database does not have the key")
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func logger(to *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
