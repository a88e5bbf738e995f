package deadline

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The time in which a run is paused does not count, at this head or at one that starts meanwhile; what was used before
// does.
func TestPausedRunHasNoDeadline(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return f.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	const run = "default/m1-1"
	state := func() trivet.WorkflowState {
		t.Helper()
		w, err := f.Workflows.Get(run)
		if err != nil {
			t.Fatal(err)
		}
		return w.Status.State
	}
	h := newHead(f)
	h.attend(t, run, 40*time.Second)
	if err := f.Pause(t.Context(), "default/m1", "op"); err != nil {
		t.Fatal(err)
	}
	h.attend(t, run, 10*time.Minute)
	if err := h.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	started := newHeadNamed(f, "head1")
	started.attend(t, run, 10*time.Minute)
	if got := state(); got != trivet.WorkflowBooting {
		t.Fatalf("while it was paused the run became %s", got)
	}
	if err := f.Resume(t.Context(), "default/m1", "op"); err != nil {
		t.Fatal(err)
	}
	for _, woken := range []*head{h, started} {
		if _, err := woken.Reconcile(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	h.attend(t, run, 10*time.Second)
	if got := state(); got != trivet.WorkflowBooting {
		t.Fatalf("10s after it was resumed, of a minute of which 40s were used, the run is %s", got)
	}
	started.attend(t, run, 20*time.Second)
	if got := state(); got != trivet.WorkflowFailed {
		t.Errorf("after the minute, as a head counts it that started while it was paused, the run is %s", got)
	}
}
