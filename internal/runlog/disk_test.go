package runlog_test

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/test/faultfs"
)

// Appended data survives a power cut; if the disk fails, Append returns an error.
func TestDiskThatLosesPower(t *testing.T) {
	disk := faultfs.New(t)
	s, err := runlog.Open(filepath.Join(disk.Dir(), "logs"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, piece := range []string{"one ", "two ", "three"} {
		if err := s.Append("blue/w1", key("a"), int64(i*4), []byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	disk.Set(faultfs.Faults{SyncError: syscall.EIO})
	for _, action := range []string{"a", "b"} {
		if err := s.Append("blue/w1", key(action), 13, []byte("four")); !errors.Is(err, syscall.EIO) {
			t.Errorf("action %s, on a broken disk: %v", action, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := disk.Cut(nil); err != nil {
		t.Fatal(err)
	}
	disk.Set(faultfs.Faults{})
	s, err = runlog.Open(filepath.Join(disk.Dir(), "logs"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := make([]byte, 20)
	if n, err := s.Read("blue/w1", key("a"), 0, got); err != nil || string(got[:n]) != "one two three" {
		t.Errorf("%q, %v", got[:n], err)
	}
}
