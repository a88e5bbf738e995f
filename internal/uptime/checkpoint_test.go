package uptime_test

import (
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/uptime"
)

// A checkpoint is read as it was written, in tenths of a second and never as more than was used. Of two, the longer
// time of each wait counts.
func TestCheckpoint(t *testing.T) {
	a, b, c := uptime.WaitID{1}, uptime.WaitID{2}, uptime.WaitID{3}
	first := uptime.Checkpoint{a: 1299 * time.Millisecond, b: -time.Second}
	second := uptime.Checkpoint{a: time.Second, c: 1000 * 24 * time.Hour}
	got := uptime.Checkpoint{}
	for _, doc := range [][]byte{first.Encode(), second.Encode()} {
		if err := got.Merge(doc); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 3 || got[a] != 1200*time.Millisecond || got[b] != 0 || got[c] != 1000*24*time.Hour {
		t.Errorf("read: %v", got)
	}
	for _, bad := range [][]byte{nil, {}, {2}, {1, 0}, first.Encode()[1:]} {
		if got.Merge(bad) == nil {
			t.Errorf("%x is taken for a checkpoint", bad)
		}
	}
}

func TestCheckpointIsBounded(t *testing.T) {
	all := uptime.Checkpoint{}
	for i := range uptime.MaxWaits + 100 {
		all[uptime.WaitID{byte(i >> 16), byte(i >> 8), byte(i)}] = time.Hour
	}
	if n := len(all.Encode()); n != uptime.MaxCheckpoint {
		t.Errorf("%d bytes, want %d", n, uptime.MaxCheckpoint)
	}
}
