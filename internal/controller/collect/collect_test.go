package collect

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// Each head removes its logs of runs that are gone, whichever head deleted the run. Logs of existing runs stay, so do
// those that were just written, and all of them while no quorum answers.
func TestLogsOfRunsThatAreGone(t *testing.T) {
	m := storetest.Member(t)
	f := fleet.New(storetest.On(t, m, store.Options{}, state.New), "head0")
	far := storetest.On(t, m, store.Options{}, state.New)
	dir := t.TempDir()
	logs, err := runlog.Open(dir, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close() })
	now := time.Now()
	for name, age := range map[string]time.Duration{"kept": 1000 * time.Hour, "gone": 2 * time.Hour,
		"gone-just-now": time.Minute, "kept-by-other-head": 2 * time.Hour} {
		key := trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}
		if err := logs.Append("default/"+name, key, 0, []byte("text")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"default/" + name + "/a.1.1.log", "default/" + name} {
			if err := os.Chtimes(filepath.Join(dir, path), now.Add(-age), now.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tables := range map[string]*state.Tables{"kept": f.Tables, "kept-by-other-head": far} {
		_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
			return tables.Workflows.In(tx).Create(&trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: name},
				Spec: trivet.WorkflowSpec{Machine: "m1"}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c := New(Config{Tables: f.Tables, Logs: logs})
	left := func(want ...string) {
		t.Helper()
		for i := range want {
			want[i] = "default/" + want[i]
		}
		got, err := logs.Workflows()
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("there are logs of %v, %v; want %v", got, err, want)
		}
	}
	if err := c.sweep(t.Context(), keyLogs, now); err != nil {
		t.Fatal(err)
	}
	left("gone-just-now", "kept", "kept-by-other-head")

	_, err = far.Store.Update(t.Context(), func(tx *store.Tx) error {
		return far.Workflows.In(tx).Delete("default/kept-by-other-head")
	})
	// a copy that is behind removes it by a later sweep
	if err := errors.Join(err, f.Store.Sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := c.sweep(t.Context(), keyLogs, now); err != nil {
		t.Fatal(err)
	}
	left("gone-just-now", "kept")

	m.Close()
	if err := c.sweep(t.Context(), keyLogs, now.Add(2*keepLog)); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("without a majority: %v", err)
	}
	left("gone-just-now", "kept")
}
