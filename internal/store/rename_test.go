package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A record that is renamed keeps what the store controls, and what this version does not know. Indexes find it, and
// watchers receive both changes at one revision.
func TestRename(t *testing.T) {
	t.Parallel()
	h := open(t, storetest.Member(t).Client(), store.Options{})
	h.must(t, func(tx *store.Tx) error {
		return errors.Join(h.machines.In(tx).Create(machine("m1", "r1")), h.machines.In(tx).Create(machine("taken", "")))
	})
	h.must(t, func(tx *store.Tx) error {
		return tx.PutRaw("Machine", "m1", []byte(`{"spec":{"rack":"r1","colour":"red"},"status":{"mood":"good"}}`))
	})
	before, err := h.machines.Get("m1")
	if err != nil {
		t.Fatal(err)
	}
	watch := h.Watch(0, "Machine")
	rename := func(from, to string) func(tx *store.Tx) error {
		return func(tx *store.Tx) error {
			m, err := h.machines.In(tx).Get("m1")
			if err != nil {
				return err
			}
			m.Name = to
			return h.machines.In(tx).Rename(from, m)
		}
	}
	for name, c := range map[string]struct {
		from, to string
		want     error
	}{
		"another's": {"m1", "taken", trivet.ErrExists}, "itself": {"m1", "m1", trivet.ErrExists},
		"no name": {"m1", "No", trivet.ErrInvalid}, "not there": {"none", "m2", trivet.ErrConflict},
	} {
		if _, err := h.Update(t.Context(), rename(c.from, c.to)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	rev := h.must(t, rename("m1", "m2"))
	now, err := h.machines.Get("m2")
	if err != nil || now.UID != before.UID || !now.Created.Equal(before.Created) || now.Generation != before.Generation ||
		now.Revision != rev {
		t.Errorf("%+v, %v; it was %+v", now, err, before)
	}
	raw, err := h.Get("Machine", "m2")
	if err != nil || !strings.Contains(string(raw.JSON()), `"colour":"red"`) ||
		!strings.Contains(string(raw.JSON()), `"mood":"good"`) {
		t.Errorf("unknown fields: %s, %v", raw.JSON(), err)
	}
	if found := h.machines.ListBy("rack", "r1"); len(found) != 1 || found[0].Name != "m2" {
		t.Errorf("the index finds %v", found)
	}
	var changes []string
	for len(changes) < 2 {
		events, err := watch.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			changes = append(changes, fmt.Sprint(e.Name, " ", e.Record() != nil, " ", e.Revision == rev))
		}
	}
	if got := strings.Join(changes, ", "); got != "m1 false true, m2 true true" && got != "m2 true true, m1 false true" {
		t.Errorf("the changes are %s", got)
	}
}
