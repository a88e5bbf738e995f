package cluster_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// smallDisk mounts a file system of so many MiB.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("mounting a small file system needs root: run the tests by 'make test' as root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// On a full disk the member ends with an error that says so, while the process goes on.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, "140m") // two log segments of 64 MB each, and little else
	m := start(t, dir)
	if _, err := m.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	rest, err := os.Create(dir + "/rest")
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	for err == nil {
		_, err = rest.Write(make([]byte, 64<<10))
	}
	value := strings.Repeat("x", 256<<10)
	writing := t.Context()
	var failed error
	for failed == nil {
		done := make(chan struct{})
		go func() { _, _ = m.Client().Put(writing, "big", value); close(done) }()
		select {
		case <-done:
		case failed = <-m.Failed():
		case <-time.After(30 * time.Second):
			t.Fatal("a full disk stops the member without a word")
		}
	}
	var said *trivet.Error
	if !errors.Is(failed, trivet.ErrUnavailable) || !errors.As(failed, &said) || !strings.Contains(said.Hint, "full") {
		t.Errorf("the member failed with %v; want a hint that the disk is full", failed)
	}
	if err := m.AwaitLeader(t.Context()); m.HasLeader() || !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the failed member seems to serve: %v", err)
	}
	m.Close() // returns, though parts of etcd never will
}
