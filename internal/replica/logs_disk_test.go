package replica_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/test/faultfs"
)

// What this head's disk cannot read of a log is read from the others, and the head is named.
func TestLogOfAFailingDisk(t *testing.T) {
	s, disk, faults := newSite(t, 2), faultfs.New(t), 0
	own, err := runlog.Open(disk.Dir(), 0, func(error) { faults++ })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	s.heads[0].logs.Store = own
	for _, h := range s.heads {
		h.appendLog(0, "one ")
	}
	disk.Set(faultfs.Faults{ReadError: syscall.EIO})
	v := s.heads[0].logs.View(logged)
	refresh(t, v, true)
	if got := readAll(t, v); got != "one " || !slices.Equal(v.Unreachable(), []string{s.heads[0].name}) || faults == 0 {
		t.Errorf("%q, unreachable are %v, %d faults", got, v.Unreachable(), faults)
	}
	disk.Set(faultfs.Faults{})
	refresh(t, v, true)
	if got := readAll(t, v); got != "one " || v.Unreachable() != nil {
		t.Errorf("%q, unreachable are %v", got, v.Unreachable())
	}
}
