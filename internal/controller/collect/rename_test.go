package collect

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The events of a machine that was renamed stay, however old they are, and those that have the former name of it; those
// of a machine that is gone do not.
func TestEventsOfRenamedMachine(t *testing.T) {
	t.Parallel()
	tables := storetest.New(t, state.New)
	old := time.Now().Add(-30 * 24 * time.Hour)
	m := &trivet.Machine{Meta: trivet.Meta{Name: "now", UID: "U1"}}
	m.Status.FormerNames = []string{"before"}
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		all := []error{tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})}
		for uid, names := range map[string][]string{"U1": {"first", "before"}, "U2": {"first", "before"}} {
			for i, name := range names {
				all = append(all, tables.Events.In(tx).Put(&trivet.Event{
					Meta: trivet.Meta{Name: trivet.EventName(uid, int64(i+1))},
					Spec: trivet.EventSpec{Subject: "machine/" + name, SubjectUID: uid, Seq: int64(i + 1), Time: old,
						Reason: trivet.ReasonRenamed}}))
			}
		}
		return errors.Join(all...)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tables.Machines.In(tx).Create(m)
	}); err != nil {
		t.Fatal(err)
	}
	c := New(Config{Tables: tables})
	if err := c.sweep(t.Context(), keyEvents, time.Now()); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[string]int{"U1": 2, "U2": 0} {
		left, err := tables.Events.Under(t.Context(), trivet.EventPrefix("machine/x", uid), "", 0)
		if err != nil || len(left) != want {
			t.Errorf("%s: %d events are left, want %d: %v", uid, len(left), want, fmt.Sprint(err))
		}
	}
}
