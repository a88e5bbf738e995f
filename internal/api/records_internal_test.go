package api

import (
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The events of a machine, the runs of a provision and the like are read by key, however many there are of others.
func TestListByFieldReadsNoOthers(t *testing.T) {
	h := &Handler{Config: Config{Fleet: fleet.New(storetest.New(t, state.New), "head0")}}
	_, err := h.Fleet.Store.Update(t.Context(), func(tx *store.Tx) error {
		for i := range 60 {
			e := &trivet.Event{Meta: trivet.Meta{Name: fmt.Sprint("e", i)}, Spec: trivet.EventSpec{
				Subject: fmt.Sprintf("machine/m%d", i%20), SubjectUID: "u", Reason: trivet.ReasonClaimed}}
			if err := h.Fleet.Events.In(tx).Create(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := trivet.LookupKind("events")
	if err != nil {
		t.Fatal(err)
	}
	for fields, want := range map[string]int{
		"spec.subject=machine/m1":                     3,
		"spec.subjectUID=u,spec.subject=machine/m11":  3,
		"spec.subject=machine/m1,spec.subject=x":      3,
		"spec.subject=machine/m":                      0,
		"spec.subject!=machine/m1":                    60,
		"spec.subject=":                               60,
		"spec.subjectUID=u,spec.reason=Claimed,name=": 60,
	} {
		sel, err := newSelector("", fields, info)
		if err != nil {
			t.Fatal(err)
		}
		all := 0
		for after, more := "", true; more; {
			records, revision := h.candidates(info.Kind, "", sel, after, 2)
			if revision == 0 {
				t.Errorf("%s: no revision", fields)
			}
			for _, r := range records {
				all, after = all+1, r.Name()
			}
			more = len(records) == 2
		}
		if all != want {
			t.Errorf("%s: %d events are read, want %d", fields, all, want)
		}
	}
}
