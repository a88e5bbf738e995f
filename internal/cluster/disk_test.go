package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// smallDisk mounts a file system of a given size.
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

// fill uses all free space, and returns the file that uses it.
func fill(t *testing.T, dir string) string {
	t.Helper()
	rest, err := os.Create(dir + "/rest")
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Close()
	for err == nil {
		_, err = rest.Write(make([]byte, 64<<10))
	}
	return rest.Name()
}

// A full disk stops writes, not reads; writes resume without a restart when there is space again.
func TestFullDiskRefusesWrites(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "300m")
	m := start(t, dir)
	kv := m.Client()
	if _, err := kv.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	rest := fill(t, dir)
	var terr *trivet.Error
	_, err := kv.Put(t.Context(), "k", "w")
	if !errors.Is(err, trivet.ErrUnavailable) || !errors.As(err, &terr) || !strings.Contains(terr.Hint, dir) {
		t.Errorf("on a full disk: %v; want a hint with the directory", err)
	}
	write := kv.Txn(t.Context()).Then(clientv3.OpGet("k"), clientv3.OpPut("k", "w"))
	_, err = write.Commit()
	if !errors.Is(err, trivet.ErrUnavailable) || !errors.Is(m.CheckSpace(), trivet.ErrUnavailable) {
		t.Errorf("a transaction on a full disk: %v", err)
	}
	read, err := kv.Txn(t.Context()).Then(clientv3.OpGet("k")).Commit()
	if err != nil || string(read.Responses[0].GetResponseRange().Kvs[0].Value) != "v" {
		t.Errorf("a read on a full disk: %v, %v", read, err)
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "k", "w"); err != nil || m.CheckSpace() != nil {
		t.Errorf("with free space again: %v", err)
	}
}

// A member without a reserve fails on a full disk with an error and a hint; the process keeps running.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, "140m") // two log segments of 64 MB each, and little else
	m, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Name: "head0", Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
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
			t.Fatal("a full disk stopped the member without an error")
		}
	}
	var terr *trivet.Error
	if !errors.Is(failed, trivet.ErrUnavailable) || !errors.As(failed, &terr) || !strings.Contains(terr.Hint, "full") {
		t.Errorf("the member failed with %v; want a hint that the disk is full", failed)
	}
	if err := m.WaitLeader(t.Context()); m.HasLeader() || !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the failed member serves: %v", err)
	}
	m.Close() // must return, although some goroutines of etcd never end
}

// A damaged file makes the start fail instead of hang.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir).Close()
	for _, file := range []string{"etcd/member/snap/db", "etcd/member/wal/0000000000000000-0000000000000000.wal"} {
		path := filepath.Join(dir, file)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damaged := slices.Clone(whole)
		for i := range damaged[:16<<10] {
			damaged[i] ^= 0x5a
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		var terr *trivet.Error
		m, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Name: "head0"})
		if !errors.As(err, &terr) || !strings.Contains(terr.Hint, "damaged") {
			t.Errorf("%s: %v, %v; want a hint that it is damaged", file, m, err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
