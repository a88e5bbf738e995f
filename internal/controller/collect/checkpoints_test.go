package collect

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/uptime"
)

// The checkpoints of members stay, those of other heads are deleted.
func TestCheckpointsOfRemovedHeads(t *testing.T) {
	tables := storetest.New(t, state.New)
	_, err := tables.Store.Update(t.Context(), func(tx *store.Tx) error {
		var all []error
		for name, at := range map[string]trivet.HeadState{"member": trivet.HeadMember, "removed": trivet.HeadRemoved} {
			all = append(all, tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name},
				Spec:   trivet.HeadSpec{Role: trivet.RoleVoter},
				Status: trivet.HeadStatus{State: at}}))
		}
		return errors.Join(all...)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, head := range []string{"member", "removed", "unknown"} {
		saved := state.NewCheckpoints(tables.Store, head)
		if err := saved.Save(t.Context(), uptime.Checkpoint{{1}: 1}); err != nil {
			t.Fatal(err)
		}
	}
	c := New(Config{Tables: tables})
	if _, err := c.Reconcile(t.Context(), keySaved); err != nil {
		t.Fatal(err)
	}
	left, err := tables.Store.Documents(t.Context(), state.CheckpointDocument)
	if heads := slices.Collect(maps.Keys(left)); err != nil || !slices.Equal(heads, []string{"member"}) {
		t.Errorf("left are those of %v, %v", heads, err)
	}
}
