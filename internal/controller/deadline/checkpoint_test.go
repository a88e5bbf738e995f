package deadline

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/uptime"
)

// reconcile processes runs, or fails the test.
func (h *head) reconcile(t *testing.T, runs ...string) {
	t.Helper()
	for _, run := range runs {
		if _, err := h.Reconcile(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *head) save(t *testing.T) {
	t.Helper()
	if err := h.checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func expectState(t *testing.T, f *fleet.Fleet, run string, want trivet.WorkflowState) {
	t.Helper()
	if w, err := f.Workflows.Get(run); err != nil || w.Status.State != want {
		t.Fatalf("the run is %s, %v; want %s", w.Status.State, err, want)
	}
}

// What a head has counted of a wait is saved, and another head goes on from there: neither from zero, nor early.
func TestWaitIsSaved(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	first := newHead(f)
	first.reconcile(t, "default/m1-1")
	first.advance(40 * time.Second)
	first.save(t)
	second := newHeadNamed(f, "head1")
	second.reconcile(t, "default/m1-1")
	second.advance(18 * time.Second)
	second.reconcile(t, "default/m1-1")
	expectState(t, f, "default/m1-1", trivet.WorkflowBooting)
	second.advance(3 * time.Second)
	second.reconcile(t, "default/m1-1")
	expectState(t, f, "default/m1-1", trivet.WorkflowFailed)
}

// A head that could not count for a while learns what the others have counted meanwhile. It leaves agents time to
// report to it, and what is saved of the wait does not become less.
func TestPausedHeadGoesOnFromOthers(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	paused, other := newHead(f), newHeadNamed(f, "head1")
	paused.reconcile(t, "default/m1-1")
	other.reconcile(t, "default/m1-1")
	other.advance(55 * time.Second)
	other.save(t)
	paused.save(t)
	for id, used := range loaded(t, f) {
		if used != 55*time.Second {
			t.Errorf("saved of wait %x: %s", id, used)
		}
	}
	paused.advance(12 * time.Second)
	paused.reconcile(t, "default/m1-1")
	expectState(t, f, "default/m1-1", trivet.WorkflowBooting)
	paused.advance(4 * time.Second)
	paused.reconcile(t, "default/m1-1")
	expectState(t, f, "default/m1-1", trivet.WorkflowFailed)
}

func loaded(t *testing.T, f *fleet.Fleet) uptime.Checkpoint {
	t.Helper()
	all, err := state.NewCheckpoints(f.Store, "reader").Load(t.Context())
	if err != nil || len(all) == 0 {
		t.Fatalf("saved: %v, %v", all, err)
	}
	return all
}

// Nothing is counted before what was saved has been read.
func TestNothingIsCountedBeforeTheCheckpoint(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	h := newHead(f)
	h.saved = nil
	h.reconcile(t, "default/m1-1")
	h.advance(2 * time.Minute)
	h.reconcile(t, "default/m1-1")
	expectState(t, f, "default/m1-1", trivet.WorkflowBooting)
}

// However many runs wait, a head writes one transaction, and none where nothing has changed. Each wait is saved by the
// head that ranks first for it.
func TestOneCheckpointForAllRuns(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	var runs []string
	for i := range 8 {
		name := fmt.Sprint("m", i)
		if err := claim(t.Context(), f, name); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, "default/"+name+"-1")
	}
	first, second := newHead(f), newHeadNamed(f, "head1")
	ranks := func(even int) func(string) int {
		return func(run string) int { return (int(run[len("default/m")]-'0') + even) % 2 }
	}
	first.Rank, second.Rank = ranks(0), ranks(1)
	first.reconcile(t, runs...)
	second.reconcile(t, runs...)
	for round := range 3 {
		first.advance(interval)
		second.advance(interval)
		before := f.Store.Revision()
		first.reconcile(t, runs...)
		second.reconcile(t, runs...)
		first.save(t)
		second.save(t)
		first.save(t)
		if err := f.Store.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wrote := f.Store.Revision() - before; wrote != 2 {
			t.Errorf("round %d: two heads wrote %d transactions", round, wrote)
		}
	}
	documents, err := f.Store.Documents(t.Context(), state.CheckpointDocument)
	if err != nil || len(documents) != 2 {
		t.Fatalf("%d documents, %v", len(documents), err)
	}
	for head, d := range documents {
		if c := (uptime.Checkpoint{}); c.Merge(d.Value) != nil || len(c) != len(runs)/2 {
			t.Errorf("%s saved %d of %d waits", head, len(c), len(runs))
		}
	}
}

// A checkpoint with as many waits as it may have fits into a transaction.
func TestLargestCheckpointIsSaved(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	all, saved := uptime.Checkpoint{}, state.NewCheckpoints(f.Store, "head0")
	for i := range uptime.MaxWaits + 1 {
		all[uptime.WaitID(fmt.Appendf(nil, "%08d", i))] = time.Hour
	}
	if err := saved.Save(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if got := loaded(t, f); len(got) != uptime.MaxWaits || uptime.MaxCheckpoint > store.MaxBytes*9/10 {
		t.Errorf("%d waits are saved, in at most %d bytes", len(got), uptime.MaxCheckpoint)
	}
}

// A head that starts goes on from what the others have counted, also where they have not saved it, or are behind what
// was saved. Heads that are restarted one after the other lose nothing.
func TestRestartedHeadsLoseNothing(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	const run = "default/m1-1"
	h := newHead(f)
	h.reconcile(t, run)
	for i := range 4 { // each lives for less than the interval
		h.advance(9 * time.Second)
		h.reconcile(t, run)
		started := newHeadAmong(f, fmt.Sprint("head", i+1), h)
		started.reconcile(t, run)
		h = started
	}
	h.advance(23 * time.Second)
	h.reconcile(t, run)
	expectState(t, f, run, trivet.WorkflowBooting)
	h.advance(2 * time.Second)
	h.reconcile(t, run)
	expectState(t, f, run, trivet.WorkflowFailed)
}

// A head asks the others when it starts, and after time that it could not count; not at each checkpoint.
func TestOthersAreAskedAfterAGap(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	h := newHead(f)
	if h.asks != 1 {
		t.Errorf("at its start: %d times", h.asks)
	}
	h.advance(interval)
	h.save(t)
	if h.asks != 1 {
		t.Errorf("after a checkpoint: %d times", h.asks)
	}
	h.clock.Advance(h.now, false)
	h.advance(interval)
	h.save(t)
	if h.asks != 2 {
		t.Errorf("after time without a leader: %d times", h.asks)
	}
}

// The time in which the others answer is counted once.
func TestSlowAnswersAreNotCountedTwice(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	h, other := newHead(f), newHeadNamed(f, "head1")
	for _, head := range []*head{h, other} {
		head.reconcile(t, "default/m1-1")
		head.advance(20 * time.Second)
	}
	h.clock.Advance(h.now, false)
	for _, head := range []*head{h, other} {
		head.advance(3 * time.Second)
	}
	h.other, h.slow = other, 2*time.Second
	h.save(t)
	h.advance(3 * time.Second)
	other.advance(3 * time.Second)
	for id, used := range h.counted() {
		if most := other.counted()[id]; used > most || used < 20*time.Second {
			t.Errorf("%s are counted, by the other head %s", used, most)
		}
	}
}
