package main

import (
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// A fill writes what it says, of the most runs that it allows: each transaction is small enough.
func TestFill(t *testing.T) {
	t.Parallel()
	const machines = 2
	dir := t.TempDir()
	keys, err := auth.Init(filepath.Join(dir, "keys"), "test")
	if err != nil {
		t.Fatal(err)
	}
	with := func(do func(*state.Tables)) {
		t.Helper()
		m, err := cluster.Start(t.Context(), cluster.Config{Dir: filepath.Join(dir, "store"), Name: "head0",
			Token: keys.CA.Root.Cluster()})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s := store.New(m.Client(), store.Options{Head: "head0", Cipher: keys.Values(), Term: m.Term})
		tables := state.New(s)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		do(tables)
	}
	with(func(tables *state.Tables) {
		if _, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			return tables.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
		}); err != nil {
			t.Fatal(err)
		}
	})
	done, err := (&bench{ctx: t.Context()}).fill(dir, machines, maxFillRuns)
	if err != nil {
		t.Fatal(err)
	}
	with(func(tables *state.Tables) {
		if n := tables.Machines.Len(); n != machines+1 { // and the sample
			t.Errorf("%d machines", n)
		}
		if n := tables.Workflows.Len(); n != machines+1 {
			t.Errorf("%d runs are in memory", n)
		}
		former, _, err := tables.Workflows.FormerAfter(t.Context(), "", 1000)
		if err != nil || len(former) != machines*(maxFillRuns-1) {
			t.Errorf("%d former runs, %v", len(former), err)
		}
		for i := range machines {
			m, err := tables.Machines.Get(filledName(i))
			if err != nil {
				t.Fatal(err)
			}
			prefix := trivet.EventPrefix("machine/"+m.Name, m.UID)
			events, err := tables.Events.Under(t.Context(), prefix, "", 0)
			if want := min(maxFillRuns*done.events, trivet.EventsPerSubject); err != nil || len(events) != want {
				t.Errorf("%s has %d events, %v; want %d", m.Name, len(events), err, want)
			}
			if _, err := tables.Workflows.Get("default/" + m.Status.Workflow); err != nil {
				t.Errorf("its last run: %v", err)
			}
		}
	})
}
