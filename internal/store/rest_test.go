package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// openResting opens a store in which active machines are at rest, of which so many stay decoded, and whose specs are
// apart.
func openResting(t *testing.T, m *cluster.Member, decoded int) *head {
	t.Helper()
	s := store.New(m.Client(), store.Options{Cipher: storetest.Cipher()})
	h := &head{Store: s, machines: store.NewTable(s, store.Index[trivet.Machine]{Name: "rack", Field: "spec.rack",
		Compared: true, Keys: func(m *trivet.Machine) []string { return []string{m.Spec.Rack} }}).
		Resting(func(m *trivet.Machine) bool { return m.Status.State == trivet.MachineActive })}
	h.machines.StayDecoded(decoded)
	h.Register(trivet.KindInfo{Kind: "Machine", SpecApart: "0.2"})
	store.NewTable[trivet.Site](s)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// sameReads fails where a head with records at rest reads other ones than a head that has all decoded.
func sameReads(t *testing.T, resting, plain *head) {
	t.Helper()
	for name, read := range map[string]func(h *head) any{
		"list":  func(h *head) any { return h.machines.List() },
		"index": func(h *head) any { return h.machines.ListBy("rack", "r1") },
		"names": func(h *head) any { return h.machines.Names() },
		"JSON": func(h *head) any {
			list, _ := h.List("Machine", "", "", 0)
			texts := []string{}
			for _, raw := range list {
				texts = append(texts, fmt.Sprint(string(raw.JSON()), raw.Bytes(), raw.Record()))
			}
			return texts
		},
		"transaction": func(h *head) any {
			var list []*trivet.Machine
			h.must(t, func(tx *store.Tx) error {
				list = h.machines.In(tx).ListBy("rack", "r2")
				for i := range list {
					m, err := h.machines.In(tx).Get(list[i].Name)
					if err != nil {
						return err
					}
					list[i] = m
				}
				return nil
			})
			return list
		},
	} {
		if diff := cmp.Diff(read(plain), read(resting)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Records at rest are the same for readers, and few of them stay decoded, whatever is read.
func TestRecordsAtRest(t *testing.T) {
	t.Parallel()
	const machines, decoded = 12, 3
	m := storetest.Member(t)
	plain, sites := openFormer(t, m, store.Options{})
	plain.must(t, func(tx *store.Tx) error {
		return sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: "0.2"}})
	})
	resting := openResting(t, m, decoded)
	check := func(what string) {
		t.Helper()
		if err := plain.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		sameReads(t, resting, plain)
		if names := resting.Decoded(); len(names) > decoded {
			t.Errorf("%s: decoded: %v", what, names)
		}
	}
	change := func(what string, do func(i int, m *trivet.Machine)) {
		t.Helper()
		for i := range machines {
			resting.must(t, func(tx *store.Tx) error {
				m, err := resting.machines.In(tx).Get(fmt.Sprint("m", i))
				if err != nil {
					m = machine(fmt.Sprint("m", i), fmt.Sprint("r", i%3))
				}
				do(i, m)
				return resting.machines.In(tx).Put(m)
			})
		}
		check(what)
	}
	watch := resting.Watch(0, "Machine")
	change("created", func(_ int, m *trivet.Machine) { m.Status.State = trivet.MachineAvailable })
	change("at rest", func(i int, m *trivet.Machine) {
		if i > 1 {
			m.Status.State = trivet.MachineActive
		}
	})
	change("status changed", func(i int, m *trivet.Machine) { m.Status.Epoch = int64(i + 1) })
	change("spec changed", func(i int, m *trivet.Machine) { m.Spec.Rack = fmt.Sprint("r", (i+1)%3) })
	change("at work again", func(i int, m *trivet.Machine) {
		if i%2 == 0 {
			m.Status.State = trivet.MachineAvailable
		}
	})
	const written = 3*machines + (machines - 2) + (machines/2 - 1)
	changes, rest := 0, 0
	for changes < written {
		events, err := watch.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			changes++
			if e.Record() == nil || e.Record().Header().Revision != e.Revision {
				t.Fatalf("a change of %s has the record %+v", e.Name, e.Record())
			}
			if e.Record().(*trivet.Machine).Status.State == trivet.MachineActive {
				rest++
			}
		}
	}
	if rest == 0 {
		t.Error("no change was of a record at rest")
	}
	started := openResting(t, m, decoded)
	var working []string // as the changes have left them
	for _, m := range plain.machines.List() {
		if m.Status.State != trivet.MachineActive {
			working = append(working, m.Name)
		}
	}
	if names := started.machines.NotAtRest(); len(working) == 0 || !slices.Equal(names, working) {
		t.Errorf("not at rest: %v, want %v", names, working)
	}
	if names := started.Decoded(); len(names) != 0 {
		t.Errorf("decoded at the start: %v", names)
	}
	sameReads(t, started, plain)
	resting.must(t, func(tx *store.Tx) error { return resting.machines.In(tx).Delete("m3") })
	check("deleted")
	if slices.Contains(resting.machines.Names(), "m3") || len(resting.machines.ListBy("rack", "r1")) != 3 {
		t.Errorf("after a deletion: %v, %v", resting.machines.Names(), resting.machines.ListBy("rack", "r1"))
	}
}
