package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A copy that is loaded from several pages is the one that a watch has made: each record with its spec, which is in
// another page, and each refused value.
func TestLoadOfManyPages(t *testing.T) {
	t.Parallel()
	const machines, each = 1500, 25
	m := storetest.Member(t)
	h, sites := openApart(t, m, store.Options{Head: "a"})
	h.must(t, func(tx *store.Tx) error { return h.machines.In(tx).Create(machine("before", "r")) }) // its spec in it
	h.reach(t, sites, "0.2")
	for first := 0; first < machines; first += each {
		h.must(t, func(tx *store.Tx) error {
			for i := first; i < first+each; i++ {
				if err := h.machines.In(tx).Create(machine(fmt.Sprintf("m%04d", i), fmt.Sprint("r", i%7))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i := 0; i < machines; i += each {
		h.setPower(t, fmt.Sprintf("m%04d", i), "on")
	}
	w := &witness{t, m.Client()}
	w.put("/trivet/machine/m0500", w.value("/trivet/machine/m0501"))
	w.put(machineSpecs+"m1200", w.value(machineSpecs+"m0001"))
	loaded, _ := openApart(t, m, store.Options{Head: "b"})
	watched := h.synced(t)
	for _, name := range []string{"m0500", "m1200"} {
		if _, err := loaded.machines.Get(name); !errors.Is(err, store.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := watched.machines.Get("m0500"); !errors.Is(err, store.ErrRefused) {
		t.Errorf("m0500 by the watch: %v", err)
	}
	want, got := shown(watched), shown(loaded)
	delete(want, "m1200") // the watch had its spec before that was damaged
	if len(want) != machines-1 || !maps.Equal(want, got) {
		t.Errorf("%d records were loaded; the watch has %d", len(got), len(want))
	}
	for i := range 3 {
		rack := fmt.Sprint("r", i)
		want, got := named(watched.machines.ListBy("rack", rack)), named(loaded.machines.ListBy("rack", rack))
		if len(want) == 0 || !slices.Equal(want, got) {
			t.Errorf("rack %s has %d machines; by the watch %d", rack, len(got), len(want))
		}
	}
}

// shown returns the JSON of all machines of a copy, by name.
func shown(h *head) map[string]string {
	all := map[string]string{}
	for m := range h.machines.AllShared() {
		raw, err := h.Get("Machine", m.Name)
		if err != nil {
			all[m.Name] = err.Error()
			continue
		}
		all[m.Name] = string(raw.JSON())
	}
	return all
}

func named(machines []*trivet.Machine) (names []string) {
	for _, m := range machines {
		names = append(names, m.Name)
	}
	return names
}
