package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// openApart opens a store whose machines have their specs apart since release 0.2.
func openApart(t *testing.T, m *cluster.Member, opts store.Options) (*head, *store.Table[trivet.Site]) {
	t.Helper()
	return startApart(t, newHead(m.Client(), opts))
}

// startApart starts a store of which openApart is true.
func startApart(t *testing.T, h *head) (*head, *store.Table[trivet.Site]) {
	t.Helper()
	sites := store.NewTable[trivet.Site](h.Store)
	h.Register(trivet.KindInfo{Kind: "Machine", SpecApart: "0.2"})
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, sites
}

// reach sets the release that all heads have.
func (h *head) reach(t *testing.T, sites *store.Table[trivet.Site], release trivet.Release) {
	t.Helper()
	h.must(t, func(tx *store.Tx) error {
		return sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: release}})
	})
}

// setPower changes the status of a machine.
func (h *head) setPower(t *testing.T, name, power string) {
	t.Helper()
	h.must(t, func(tx *store.Tx) error {
		m, err := h.machines.In(tx).Get(name)
		if err != nil {
			return err
		}
		m.Status.Power = power
		return h.machines.In(tx).Put(m)
	})
}

// storedBytes returns how many keys of the store begin with a prefix, and the size of their values.
func storedBytes(t *testing.T, m *cluster.Member, prefix string) (keys, size int) {
	t.Helper()
	resp, err := m.Client().Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		size += len(kv.Value)
	}
	return len(resp.Kvs), size
}

const machineSpecs = "/trivet/-spec/machine/"

// A write of the status does not write the spec, and with the record its spec is deleted.
func TestStatusIsWrittenAlone(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openApart(t, m, store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	rack := longText()
	h.put(t, "m1", rack)
	spec := (&witness{t, m.Client()}).value(machineSpecs + "m1")
	h.setPower(t, "m1", "on")
	if _, size := storedBytes(t, m, "/trivet/machine/"); size > 400 {
		t.Errorf("the status has %d bytes", size)
	}
	if (&witness{t, m.Client()}).value(machineSpecs+"m1") != spec {
		t.Error("the spec was written with the status")
	}
	other, _ := openApart(t, m, store.Options{Head: "b"})
	for _, h := range []*head{h, other} {
		got, err := h.machines.Get("m1")
		if err != nil || got.Spec.Rack != rack || got.Status.Power != "on" || got.Generation != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	h.put(t, "m1", "r2")
	if got, err := other.synced(t).machines.Get("m1"); err != nil || got.Spec.Rack != "r2" || got.Generation != 2 {
		t.Errorf("after a change of the spec: %+v, %v", got, err)
	}
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") })
	if keys, _ := storedBytes(t, m, machineSpecs); keys != 0 {
		t.Errorf("%d specs are left", keys)
	}
}

// Records that were written with their specs are read, and separated with the next write once all heads have the
// release.
func TestSpecIsSeparatedWhenAllHeadsKnow(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openApart(t, m, store.Options{Head: "a"})
	h.reach(t, sites, "0.1")
	h.put(t, "m1", "r1")
	h.setPower(t, "m1", "on")
	if keys, _ := storedBytes(t, m, machineSpecs); keys != 0 {
		t.Fatal("the spec was separated before all heads knew of that")
	}
	h.reach(t, sites, "0.2")
	h.setPower(t, "m1", "off")
	if keys, _ := storedBytes(t, m, machineSpecs); keys != 1 {
		t.Error("the spec was not separated")
	}
	if got, err := h.machines.Get("m1"); err != nil || got.Spec.Rack != "r1" || got.Generation != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Fields that this version does not know are kept, in the spec that is not written as in the status that is.
func TestUnknownFieldsOfSpecsApart(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openApart(t, m, store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	h.must(t, func(tx *store.Tx) error {
		return tx.PutRaw("Machine", "m1", []byte(`{"spec":{"rack":"r1","colour":"red"},"status":{"mood":"good"}}`))
	})
	h.setPower(t, "m1", "on")
	raw, err := h.Get("Machine", "m1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"colour":"red"`, `"mood":"good"`, `"power":"on"`, `"rack":"r1"`} {
		if !bytes.Contains(raw.JSON(), []byte(want)) {
			t.Errorf("%s lacks %s", raw.JSON(), want)
		}
	}
}

// A party that may write to the store but has no key cannot give a record the spec of another one, or an older one of
// its own.
func TestSpecsCannotBeMixed(t *testing.T) {
	t.Parallel()
	for name, mix := range map[string]func(w *witness, h *head){
		"that of another record": func(w *witness, _ *head) {
			w.put(machineSpecs+"m1", w.value(machineSpecs+"m2"))
		},
		"none": func(w *witness, _ *head) { w.delete(machineSpecs + "m1") },
		"the first one of the former record": func(w *witness, h *head) {
			old := w.value(machineSpecs + "m1")
			h.must(w.t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m1") })
			h.put(w.t, "m1", "new")
			w.delete(machineSpecs + "m1")
			w.put(machineSpecs+"m1", old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := storetest.Member(t)
			h, sites := openApart(t, m, store.Options{Head: "a"})
			h.reach(t, sites, "0.2")
			h.put(t, "m1", "r1")
			h.put(t, "m2", "r2")
			mix(&witness{t, m.Client()}, h)
			other, _ := openApart(t, m, store.Options{Head: "b"})
			if got, err := other.machines.Get("m1"); !errors.Is(err, store.ErrRefused) {
				t.Errorf("read: %+v, %v", got, err)
			}
			if got, err := other.machines.Get("m2"); err != nil || got.Spec.Rack != "r2" {
				t.Errorf("the other record: %+v, %v", got, err)
			}
			_, err := other.Update(t.Context(), func(tx *store.Tx) error {
				_, err := other.machines.In(tx).Get("m1")
				return err
			})
			if !errors.Is(err, store.ErrRefused) {
				t.Errorf("a transaction: %v", err)
			}
			other.must(t, func(tx *store.Tx) error { return other.machines.In(tx).Delete("m1") })
			other.put(t, "m1", "r3")
			if got, err := other.machines.Get("m1"); err != nil || got.Spec.Rack != "r3" {
				t.Errorf("created again: %+v, %v", got, err)
			}
		})
	}
}

// A watch that is resumed, for which the changes are read from etcd, gets whole records: also those that have another
// spec now, or none as they were deleted.
func TestReplayHasWholeRecords(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openApart(t, m, store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	begin := h.put(t, "m1", "r1")
	h.put(t, "m2", "r2")
	var want []string
	note := func(op, name, rack, power string) { want = append(want, fmt.Sprint(op, name, rack, power)) }
	note("put", "m2", "r2", "")
	h.setPower(t, "m1", "on")
	note("put", "m1", "r1", "on")
	h.put(t, "m1", "r3")
	note("put", "m1", "r3", "")
	h.setPower(t, "m2", "off")
	note("put", "m2", "r2", "off")
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Delete("m2") })
	note("delete", "m2", "r2", "off")
	for _, from := range []string{"history", "etcd"} {
		var got []string
		w := h.Watch(begin, "Machine")
		for len(got) < len(want) {
			events, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				op := "put"
				if e.Deleted {
					op = "delete"
				}
				var r trivet.Machine
				if err := json.Unmarshal(e.JSON(), &r); err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprint(op, r.Name, r.Spec.Rack, r.Status.Power))
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("from the %s: %q, want %q", from, got, want)
		}
		h.ForgetHistory()
		if _, err := m.Client().Compact(t.Context(), begin+1); from == "history" && err != nil {
			t.Fatal(err) // what follows is still there, and not the revision at which m1 was written
		}
	}
	if _, err := m.Client().Compact(t.Context(), h.Revision()); err != nil {
		t.Fatal(err)
	}
	if events, err := h.Watch(begin, "Machine").Next(t.Context()); !errors.Is(err, trivet.ErrCompacted) {
		t.Errorf("after a compaction: %v, %v", events, err)
	}
}

// Random writes by two heads, with keys of the store that change, are read as a model says: by both, and by a head that
// is started then.
func TestSpecsApartAreAsTogether(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	old, next := keyring.New(), keyring.New()
	var heads []*head
	var sites *store.Table[trivet.Site]
	for _, name := range []string{"a", "b"} {
		cipher := keyring.NewCipher(keyring.Of(old, next))
		h, s := openApart(t, m, store.Options{Head: name, Cipher: cipher})
		heads, sites = append(heads, h), s
	}
	heads[1].reach(t, sites, "0.2")
	model := map[string]trivet.Machine{}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for i := range 300 {
		h, name := heads[random.IntN(2)], fmt.Sprint("m", random.IntN(4))
		is, exists := model[name]
		err := h.Sync(t.Context())
		switch op := random.IntN(8); {
		case err != nil:
		case op == 0 && exists:
			_, err = h.Update(t.Context(), func(tx *store.Tx) error { return h.machines.In(tx).Delete(name) })
			delete(model, name)
		case op <= 2 || !exists:
			is.Spec.Rack, is.Status.Power = fmt.Sprint(i), "on"
			_, err = h.Update(t.Context(), func(tx *store.Tx) error {
				v := &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: is.Spec, Status: is.Status}
				return h.machines.In(tx).Put(v)
			})
			model[name] = is
		case op == 3:
			doc := fmt.Sprintf(`{"spec":{"rack":"raw%d"},"status":{"power":"off"}}`, i)
			is.Spec.Rack, is.Status = fmt.Sprint("raw", i), trivet.MachineStatus{Power: "off"}
			_, err = h.Update(t.Context(), func(tx *store.Tx) error { return tx.PutRaw("Machine", name, []byte(doc)) })
			model[name] = is
		default:
			is.Status.Reason = fmt.Sprint(i)
			_, err = h.Update(t.Context(), func(tx *store.Tx) error {
				v, err := h.machines.In(tx).Get(name)
				if err != nil {
					return err
				}
				v.Status = is.Status
				return h.machines.In(tx).Put(v)
			})
			model[name] = is
		}
		if err == nil && i == 150 {
			_, err = h.Update(t.Context(), func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
			for from, more := "", true; more && err == nil; more = from != "" {
				var p store.ResealPage
				p, err = h.Reseal(t.Context(), from)
				from = p.Next
			}
		}
		if err != nil {
			t.Fatalf("seed %d, write %d of %s: %v", seed, i, name, err)
		}
	}
	cipher := keyring.NewCipher(keyring.Of(old, next))
	late, _ := openApart(t, m, store.Options{Head: "c", Cipher: cipher})
	for i, h := range append(heads, late) {
		h.synced(t)
		if n := h.machines.Len(); n != len(model) {
			t.Errorf("seed %d: head %d has %d records, want %d", seed, i, n, len(model))
		}
		for name, want := range model {
			got, err := h.machines.Get(name)
			if err != nil || got.Spec.Rack != want.Spec.Rack || !reflect.DeepEqual(got.Status, want.Status) {
				t.Errorf("seed %d: head %d: %s is %+v, %v, want %+v", seed, i, name, got, err, want)
			}
		}
	}
	if keys, _ := storedBytes(t, m, machineSpecs); keys != len(model) {
		t.Errorf("seed %d: %d specs of %d records", seed, keys, len(model))
	}
}
