package lab

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/recovery"
)

// A write that is missing is counted, and outside the plan where it was written up to the plan's revision, or before
// its time, or where there is no plan.
func TestCountLost(t *testing.T) {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	plan := &recovery.Plan{Revision: 100, DataTime: at}
	before, after := at.Add(-time.Second), at.Add(time.Second)
	left := map[recordID]int{{"Template", "a"}: 1, {"Template", "b"}: 0, {"Image", "c"}: 0}
	for name, c := range map[string]struct {
		w             written
		plan          *recovery.Plan
		lost, outside int
	}{
		"there":                       {written{"Template", "a", 0, 50, before}, plan, 0, 0},
		"its change is there":         {written{"Template", "a", 1, 60, before}, plan, 0, 0},
		"within the plan":             {written{"Template", "d", 0, 101, after}, plan, 1, 0},
		"its change, within":          {written{"Template", "b", 1, 101, after}, plan, 1, 0},
		"another kind, within":        {written{"Template", "c", 0, 101, after}, plan, 1, 0},
		"at the time of the plan":     {written{"Template", "d", 0, 101, at}, plan, 1, 0},
		"at its revision":             {written{"Template", "d", 0, 100, after}, plan, 1, 1},
		"before its time":             {written{"Template", "d", 0, 101, before}, plan, 1, 1},
		"its change, before both":     {written{"Template", "b", 1, 60, before}, plan, 1, 1},
		"nothing may be lost":         {written{"Template", "d", 0, 101, after}, nil, 1, 1},
		"nothing may be lost, nor is": {written{"Image", "c", 0, 101, after}, nil, 0, 0},
	} {
		lost, outside := countLost([]written{c.w}, left, boundOf(c.plan))
		if lost != c.lost || outside != c.outside {
			t.Errorf("%s: %d lost, %d outside; want %d, %d", name, lost, outside, c.lost, c.outside)
		}
	}
}

// A blob is lost where no head has a good copy. It is outside the plan where that does not name it.
func TestBlobsOutside(t *testing.T) {
	copies := []trivet.BlobCopy{
		{Head: "head0", Digest: "good", State: trivet.CopyGood}, {Head: "head1", Digest: "good", State: trivet.CopyMissing},
		{Head: "head0", Digest: "repaired", State: trivet.CopyRepaired},
		{Head: "head0", Digest: "named", State: trivet.CopyMissing},
		{Head: "head0", Digest: "damaged", State: trivet.CopyDamaged},
		{Head: "head0", Digest: "missing", State: trivet.CopyMissing}, {Head: "head1", Digest: "missing",
			State: trivet.CopyUnknown},
	}
	plan := &recovery.Plan{MissingBlobs: []recovery.MissingBlob{{Digest: "named"}}}
	if n := blobsOutside(copies, plan); n != 2 {
		t.Errorf("%d are outside the plan, want 2", n)
	}
	if n := blobsOutside(copies, nil); n != 3 {
		t.Errorf("%d are lost where nothing may be, want 3", n)
	}
}

// What is lost outside the plan, or not well again, makes the demo fail.
func TestRecoveryFails(t *testing.T) {
	for _, c := range []struct {
		r    RecoveryCase
		want bool
	}{
		{RecoveryCase{Blessed: true, RecordsLost: 7}, false},
		{RecoveryCase{RecordsLost: 7}, true},
		{RecoveryCase{Blessed: true, RecordsLostOutsidePlan: 1}, true},
		{RecoveryCase{Blessed: true, BlobsLostOutsidePlan: 1}, true},
	} {
		if got := c.r.Failed(); got != c.want {
			t.Errorf("%+v: failed is %v", c.r, got)
		}
	}
}
