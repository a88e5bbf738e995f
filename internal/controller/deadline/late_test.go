package deadline

import (
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A run is overdue where nothing ended its wait a minute after the deadline, and not before; its transition ends that.
// Without a quorum nothing is judged.
func TestOverdueRuns(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	h := newHead(f)
	h.reconcile(t, "default/m1-1")
	expect := func(when string, want ...string) {
		t.Helper()
		if late := h.Late(); late.Overdue != len(want) || !slices.Equal(late.OverdueRuns, want) || late.Silent > 0 {
			t.Errorf("%s: %+v, want %q", when, late, want)
		}
	}
	h.advance(110 * time.Second) // of a limit of a minute
	expect("within a minute of the deadline")
	h.advance(20 * time.Second)
	expect("later", "m1-1")
	clock := h.clock
	h.now = h.now.Add(time.Second)
	h.clock.Advance(h.now, false)
	expect("without a quorum")
	h.clock = clock
	h.reconcile(t, "default/m1-1")
	expectState(t, f, "default/m1-1", trivet.WorkflowFailed)
	h.reconcile(t, "default/m1-1")
	expect("after its end")
}

// An agent is silent from half of the time on after which it is lost.
func TestSilentRuns(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		return f.MACs.In(tx).Put(&trivet.MAC{Meta: trivet.Meta{Name: mac}, Spec: trivet.MACSpec{Machine: "m1"}})
	}); err != nil {
		t.Fatal(err)
	}
	hello := &trivet.Hello{MAC: mac, Key: "k", BootID: "b"}
	if _, err := f.Hello(t.Context(), hello, auth.BootToken{Machine: "m1", MAC: mac}); err != nil {
		t.Fatal(err)
	}
	h := newHead(f)
	h.reconcile(t, "default/m1-1")
	h.agent = h.clock.Counted()
	half := f.AgentTimeout() / 2
	h.advance(half - time.Second)
	if late := h.Late(); late.Silent != 0 {
		t.Errorf("%+v", late)
	}
	h.advance(2 * time.Second)
	if late := h.Late(); late.Silent != 1 || !slices.Equal(late.SilentRuns, []string{"m1-1"}) || late.Overdue > 0 {
		t.Errorf("%+v", late)
	}
}
