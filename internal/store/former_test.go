package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// maxFormer is how many former machines of one rack the store of openFormer keeps.
const maxFormer = 3

// openFormer opens a store that keeps former machines since release 0.2, and has specs apart.
func openFormer(t *testing.T, m *cluster.Member, opts store.Options) (*head, *store.Table[trivet.Site]) {
	t.Helper()
	if opts.Cipher == nil {
		opts.Cipher = storetest.Cipher()
	}
	s := store.New(m.Client(), opts)
	under := func(_ string, value func(string) string) string {
		if arch := value("spec.arch"); arch != "" {
			return arch + "-"
		}
		return ""
	}
	h := &head{Store: s, machines: store.NewTable(s, store.Index[trivet.Machine]{Name: "rack", Field: "spec.rack",
		Compared: true, Keys: func(m *trivet.Machine) []string { return []string{m.Spec.Rack} }}).
		KeepFormer("rack", maxFormer, under)}
	sites := store.NewTable[trivet.Site](s)
	h.Register(trivet.KindInfo{Kind: "Machine", SpecApart: "0.2", FormerSince: "0.2"})
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, sites
}

func (h *head) retire(t *testing.T, names ...string) {
	t.Helper()
	h.must(t, func(tx *store.Tx) (err error) {
		for _, name := range names {
			err = errors.Join(err, h.machines.In(tx).Retire(name))
		}
		return err
	})
}

// page returns the names of one page of a list, with fields like "spec.rack=r1".
func (h *head) page(t *testing.T, after string, limit, bytes int, fields ...string) (names []string, more bool) {
	t.Helper()
	list, more, _, err := h.ListAll(t.Context(), store.Query{Kind: "Machine", After: after, Limit: limit, Bytes: bytes,
		Field: func(want string) string {
			for _, f := range fields {
				if value, ok := strings.CutPrefix(f, want+"="); ok {
					return value
				}
			}
			return ""
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range list {
		names = append(names, raw.Name())
	}
	return names, more
}

// pages returns the names of all pages.
func (h *head) pages(t *testing.T, limit, bytes int, fields ...string) (all []string) {
	t.Helper()
	for after, more := "", true; more; {
		var names []string
		if names, more = h.page(t, after, limit, bytes, fields...); len(names) == 0 && more {
			t.Fatalf("an empty page after %q, and more", after)
		}
		if all = append(all, names...); len(all) > 0 {
			after = all[len(all)-1]
		}
	}
	return all
}

// A former record is read as it was, and is in no head's copy. What was stored of it is stored once.
func TestFormerRecordIsRead(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openFormer(t, m, store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	h.must(t, func(tx *store.Tx) error {
		return tx.PutRaw("Machine", "m1", []byte(`{"spec":{"rack":"r1","colour":"red"},"status":{"mood":"good"}}`))
	})
	h.setPower(t, "m1", "on")
	was, err := h.Find(t.Context(), "Machine", "m1")
	if err != nil || was.Cold() {
		t.Fatal(err, was.Cold())
	}
	h.retire(t, "m1")
	late, _ := openFormer(t, m, store.Options{Head: "b"})
	for _, h := range []*head{h, late} {
		if _, err := h.machines.Get("m1"); !errors.Is(err, trivet.ErrNotFound) || h.machines.Len() != 0 {
			t.Errorf("it is in the copy: %v", err)
		}
		is, err := h.Find(t.Context(), "Machine", "m1")
		if err != nil || !is.Cold() || string(is.JSON()) != string(was.JSON()) || is.Revision() != was.Revision() {
			t.Fatalf("it is %s, %v; it was %s", is.JSON(), err, was.JSON())
		}
		typed, err := h.machines.Find(t.Context(), "m1")
		if err != nil || typed.Spec.Rack != "r1" || typed.Status.Power != "on" || typed.Name != "m1" {
			t.Errorf("%+v, %v", typed, err)
		}
		if has, err := h.machines.HasFormer(t.Context(), "m1"); !has || err != nil {
			t.Errorf("there is none: %v", err)
		}
		if _, err := h.machines.Find(t.Context(), "m"); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("a name that it begins with: %v", err)
		}
	}
	for prefix, want := range map[string]int{"/trivet/machine/": 0, machineSpecs: 0, "/trivet/-list/machine/": 0,
		"/trivet-history/machine/": 1, "/trivet-history/-former/machine/": 1} {
		if keys, _ := storedBytes(t, m, prefix); keys != want {
			t.Errorf("%d keys begin with %s, want %d", keys, prefix, want)
		}
	}
}

// While a head may not know of former records, none becomes one.
func TestRetireNeedsTheRelease(t *testing.T) {
	t.Parallel()
	h, sites := openFormer(t, storetest.Member(t), store.Options{Head: "a"})
	h.reach(t, sites, "0.1")
	h.put(t, "m1", "r1")
	retire := func() error {
		_, err := h.Update(t.Context(), func(tx *store.Tx) error { return h.machines.In(tx).Retire("m1") })
		return err
	}
	if err := retire(); !errors.Is(err, trivet.ErrConflict) || h.machines.CanRetire() || h.machines.Len() != 1 {
		t.Errorf("before the release: %v", err)
	}
	h.reach(t, sites, "0.2")
	if err := retire(); err != nil || !h.machines.CanRetire() || h.machines.Len() != 0 {
		t.Errorf("with the release: %v", err)
	}
	if err := retire(); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}

// Of one group so many are kept, the newest ones, also where one transaction adds several.
func TestFormerRecordsOfAGroupAreBounded(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openFormer(t, m, store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	for _, name := range []string{"m3", "m1", "m2", "m5", "m4", "m6"} {
		h.put(t, name, "r1")
	}
	h.put(t, "n1", "r2")
	expect := func(want ...string) {
		t.Helper()
		for _, limit := range []int{1, 2, 100} {
			if got := h.pages(t, limit, 1<<20, "spec.rack=r1"); !slices.Equal(got, want) {
				t.Errorf("by %d: %v, want %v", limit, got, want)
			}
		}
		if got := h.pages(t, 100, 1, "spec.rack=r1"); !slices.Equal(got, want) {
			t.Errorf("a byte at a time: %v, want %v", got, want)
		}
	}
	h.retire(t, "n1", "m3")
	h.retire(t, "m1", "m2")
	expect("m1", "m2", "m3", "m4", "m5", "m6")
	h.retire(t, "m5", "m4") // m3 and m1 are too many
	expect("m2", "m4", "m5", "m6")
	if got := h.pages(t, 100, 1<<20); !slices.Equal(got, []string{"m2", "m4", "m5", "m6", "n1"}) {
		t.Errorf("all: %v", got)
	}
	drop := func(name string) error {
		_, err := h.Update(t.Context(), func(tx *store.Tx) error { return h.machines.In(tx).DropFormer(name) })
		return err
	}
	for _, name := range []string{"m4", "m2", "m5"} {
		if err := drop(name); err != nil {
			t.Fatal(err)
		}
	}
	expect("m6")
	if err := drop("m1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("one that is gone: %v", err)
	}
	if keys, _ := storedBytes(t, m, "/trivet-history/"); keys != 2 { // n1 and its group
		t.Errorf("%d keys are left", keys)
	}
}

// Watchers get no event of a move, neither at once nor when it is read from etcd. One of a deletion that a party
// without a key disguises as a move they get.
func TestMoveIsNoChange(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openFormer(t, m, store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	begin := h.put(t, "m1", "r1")
	h.put(t, "m2", "r1")
	h.retire(t, "m1", "m2")
	h.put(t, "m3", "r1")
	w := &witness{t, m.Client()}
	forged := w.value("/trivet-history/machine/m1!")
	h.put(t, "m4", "r1")
	h.put(t, "m5", "r1")
	if _, err := w.Txn(t.Context()).Then(opPut("/trivet-history/machine/m4!", forged),
		opDelete("/trivet/machine/m4")).Commit(); err != nil {
		t.Fatal(err)
	}
	h.synced(t)
	want := "put m2, put m3, put m4, put m5, delete m4"
	for _, from := range []string{"history", "etcd"} {
		var got []string
		for w := h.Watch(begin, "Machine"); len(got) < 5; {
			events, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				op := "put "
				if e.Deleted {
					op = "delete "
				}
				got = append(got, op+e.Name)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("from the %s: %q, want %q", from, got, want)
		}
		h.ForgetHistory()
	}
	if _, err := h.Find(t.Context(), "Machine", "m4"); !errors.Is(err, store.ErrRefused) {
		t.Errorf("the forged one: %v", err)
	}
}

// A list has a record once that is moved between two of its pages.
func TestMovedBetweenPages(t *testing.T) {
	t.Parallel()
	h, sites := openFormer(t, storetest.Member(t), store.Options{Head: "a"})
	h.reach(t, sites, "0.2")
	names := []string{"m1", "m1-1", "m10", "m2", "m3"} // in the order of names, which is not that of numbers
	for _, name := range names {
		h.put(t, name, name)
	}
	var got []string
	for after, more := "", true; more; after = got[len(got)-1] {
		var page []string
		page, more = h.page(t, after, 2, 1<<20)
		got = append(got, page...)
		if len(got) == 2 {
			h.retire(t, "m1-1", "m10", "m3") // one that was read, and two that follow
		}
	}
	if !slices.Equal(got, names) {
		t.Errorf("%v, want %v", got, names)
	}
	if got := h.pages(t, 100, 1<<20, "spec.arch=m1"); !slices.Contains(got, "m1-1") || slices.Contains(got, "m10") {
		t.Errorf("under a prefix: %v", got)
	}
}

// A record is found while it is moved, at the head that moves it and at another one.
func TestReadWhileMoved(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openFormer(t, m, store.Options{Head: "a"})
	far, _ := openFormer(t, m, store.Options{Head: "b"})
	h.reach(t, sites, "0.2")
	const all = 40
	for i := range all {
		h.put(t, fmt.Sprintf("m%02d", i), fmt.Sprint("r", i/maxFormer))
	}
	far.synced(t)
	done := make(chan error)
	go func() {
		var failed error
		for i := range all {
			_, err := h.Update(t.Context(), func(tx *store.Tx) error {
				return h.machines.In(tx).Retire(fmt.Sprintf("m%02d", i))
			})
			failed = errors.Join(failed, err)
		}
		done <- failed
	}()
	for reads := 0; ; reads++ {
		for _, h := range []*head{h, far} {
			name := fmt.Sprintf("m%02d", reads%all)
			if raw, err := h.Find(t.Context(), "Machine", name); err != nil || raw.Name() != name {
				t.Fatalf("read %d: %v", reads, err)
			}
		}
		if names, _ := far.page(t, "", 2*all, 1<<20); len(names) != all {
			t.Fatalf("read %d: a list has %d records", reads, len(names))
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("after %d reads: %v", reads, err)
			}
			return
		default:
		}
	}
}

// A transaction that found no former record of a name runs again where there is one when it commits, and one that is
// changed meanwhile is not retired.
func TestFormerRecordsAreCompared(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	h, sites := openFormer(t, m, store.Options{Head: "a"})
	far, _ := openFormer(t, m, store.Options{Head: "b"})
	h.reach(t, sites, "0.2")
	h.put(t, "m1", "r1")
	far.synced(t)
	var found []bool
	h.must(t, func(tx *store.Tx) error {
		_, err := h.machines.In(tx).Former("m1")
		found = append(found, err == nil)
		if len(found) == 1 {
			far.retire(t, "m1")
		}
		return h.machines.In(tx).Put(machine(fmt.Sprint("found-", err == nil), ""))
	})
	if !slices.Equal(found, []bool{false, true}) || h.machines.Names()[0] != "found-true" {
		t.Errorf("the runs of the transaction found %v; it wrote %v", found, h.machines.Names())
	}
	h.put(t, "m2", "r1")
	runs := 0
	h.must(t, func(tx *store.Tx) error {
		v, err := h.machines.In(tx).Get("m2")
		if err != nil {
			return err
		}
		if runs++; runs == 1 {
			far.synced(t).setPower(t, "m2", "on")
		}
		if v.Status.Power != "" {
			return nil
		}
		return h.machines.In(tx).Retire("m2")
	})
	if got, err := h.machines.Get("m2"); err != nil || got.Status.Power != "on" {
		t.Errorf("the changed one: %+v, %v", got, err)
	}
}

// jsonOf returns the machine in a record's JSON.
func jsonOf(t *testing.T, raw store.Raw) (v trivet.Machine) {
	t.Helper()
	if err := json.Unmarshal(raw.JSON(), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
