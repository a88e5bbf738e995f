package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// Check reads what is in the copy and what is not: records, specs that are apart, history, streams and documents.
func TestCheck(t *testing.T) {
	m := storetest.Member(t)
	tables := storetest.On(t, m, store.Options{Head: "head0"}, state.New)
	update := func(do func(tx *store.Tx) error) {
		t.Helper()
		if _, err := tables.Store.Update(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	site := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}}
	site.Status.ClusterVersion = trivet.CurrentRelease
	update(func(tx *store.Tx) error { return tables.Sites.In(tx).Put(site) })
	run := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w1"}}
	run.Spec.Machine = "m1"
	update(func(tx *store.Tx) error {
		tx.Append("audit", []byte(`{"x":1}`))
		return errors.Join(tables.Workflows.In(tx).Put(run), tables.Machines.In(tx).Put(
			&trivet.Machine{Meta: trivet.Meta{Name: "m1"}}))
	})
	former := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w0"}}
	former.Spec.Machine = "m1"
	update(func(tx *store.Tx) error { return tables.Workflows.In(tx).Put(former) })
	update(func(tx *store.Tx) error { return tables.Workflows.In(tx).Retire("default/w0") })
	event := func(slot int) *trivet.Event {
		return &trivet.Event{Meta: trivet.Meta{Name: fmt.Sprintf("e%02x", slot)}, Spec: trivet.EventSpec{
			Subject: "machine/m1", SubjectUID: "u1", Reason: trivet.ReasonEnrolled}}
	}
	for i := range 18 { // a page, and two that have keys of their own
		update(func(tx *store.Tx) error { return tables.Events.In(tx).Put(event(i)) })
	}
	if err := m.Compact(t.Context(), m.Revision()); err != nil { // as the rotation of the store's key does
		t.Fatal(err)
	}
	if err := tables.Store.PutDocument(t.Context(), "counts", "head0", store.Document{}, []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"/trivet/machine/m9", "/trivet-cold/audit/x", "/trivet-history/event/e1!5", "/else"} {
		if _, err := m.Client().Put(t.Context(), key, "forged"); err != nil {
			t.Fatal(err)
		}
	}
	if err := tables.Store.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	kinds, bad, keys := map[trivet.Kind]int{}, []string{}, map[string]bool{}
	err := tables.Store.Check(t.Context(), func(c store.Checked) {
		keys[c.Key] = true
		switch {
		case c.Err != nil:
			bad = append(bad, c.Key)
		case c.Record != nil:
			kinds[trivet.KindOf(c.Record)]++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[trivet.Kind]int{"Site": 1, "Workflow": 2, "Machine": 1, "Event": 18}; !maps.Equal(kinds, want) {
		t.Errorf("records %v, want %v", kinds, want)
	}
	slices.Sort(bad)
	want := []string{"/else", "/trivet-cold/audit/x", "/trivet-history/event/e1!5", "/trivet/machine/m9"}
	if !slices.Equal(bad, want) {
		t.Errorf("refused %q, want %q", bad, want)
	}
	for _, part := range []string{"/trivet/-spec/workflow/", "/trivet-cold/audit/", "/trivet-document/counts/",
		"/trivet-history/-former/workflow/"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(keys)),
			func(key string) bool { return strings.HasPrefix(key, part) }) {
			t.Errorf("nothing under %s was checked", part)
		}
	}
}
