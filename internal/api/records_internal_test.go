package api

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The runs of a machine, the events of one and the like are read by key, however many there are of others.
func TestListByFieldReadsNoOthers(t *testing.T) {
	h := &Handler{Config: Config{Fleet: fleet.New(storetest.New(t, state.New), "head0")}}
	fill := func(tx *store.Tx, from int) error {
		for i := from; i < from+20; i++ {
			uid := fmt.Sprint("u", i%20)
			e := &trivet.Event{Meta: trivet.Meta{Name: trivet.EventName(uid, int64(i/20))}, Spec: trivet.EventSpec{
				Subject: fmt.Sprintf("machine/m%d", i%20), SubjectUID: uid, Reason: trivet.ReasonClaimed}}
			a := &trivet.Address{Meta: trivet.Meta{Name: fmt.Sprint("10.0.0.", i)}, Spec: trivet.AddressSpec{
				Network: fmt.Sprint("n", i%20), MAC: "52:54:00:00:00:01"}}
			if err := errors.Join(h.Fleet.Events.In(tx).Put(e), h.Fleet.Addresses.In(tx).Create(a)); err != nil {
				return err
			}
		}
		return nil
	}
	for from := 0; from < 60; from += 20 {
		if _, err := h.Fleet.Store.Update(t.Context(), func(tx *store.Tx) error { return fill(tx, from) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		kind, fields string
		want         int
	}{
		{"addresses", "spec.network=n1", 3},
		{"addresses", "spec.fixed=false,spec.network=n11", 3},
		{"addresses", "spec.network=n1,spec.network=x", 3},
		{"addresses", "spec.network=n", 0},
		{"addresses", "spec.network!=n1", 60},
		{"addresses", "spec.network=", 60},
		{"addresses", "spec.fixed=false,name=", 60},
		{"events", "spec.subjectUID=u1,spec.subject=machine/m1", 3},
		{"events", "spec.subject=machine/m1,spec.subjectUID=u", 0},
		{"events", "spec.subject=network/lan", 0},
		{"events", "spec.subject=machine/m1", 60},
		{"events", "spec.subjectUID=u1", 60},
		{"events", "spec.subjectUID!=u1,spec.subject!=machine/m1", 60},
	} {
		info, err := trivet.LookupKind(c.kind)
		if err != nil {
			t.Fatal(err)
		}
		sel, err := newSelector("", c.fields, info)
		if err != nil {
			t.Fatal(err)
		}
		all := 0
		for after, more := "", true; more; {
			records, revision, err := h.candidates(t.Context(), info.Kind, "", sel, after, 2)
			if revision == 0 || err != nil {
				t.Errorf("%s: revision %d, %v", c.fields, revision, err)
			}
			for _, r := range records {
				all, after = all+1, r.Name()
			}
			more = len(records) == 2
		}
		if all != c.want {
			t.Errorf("%s: %d %s are read, want %d", c.fields, all, c.kind, c.want)
		}
	}
}
