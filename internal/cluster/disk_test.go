package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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

// A damaged file makes the start fail instead of hang, with a hint that does not lose what was acknowledged.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"etcd/member/snap/db", "etcd/member/wal/0000000000000000-0000000000000000.wal"} {
		dir, err := os.MkdirTemp("", "damaged-") // etcd allocates a file of its log after its failed start, too
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		start(t, dir).Close()
		damage(t, filepath.Join(dir, file))
		var terr *trivet.Error
		m, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Name: "head0"})
		if !errors.As(err, &terr) || !strings.Contains(terr.Hint, "damaged") ||
			!strings.Contains(terr.Hint, "head replace") {
			t.Errorf("%s: %v, %v; want a hint that it is damaged, and how to replace the head", file, m, err)
		}
	}
}

// damage changes the beginning of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := make([]byte, 16<<10)
	_, err = f.ReadAt(text, 0)
	for i := range text {
		text[i] ^= 0x5a
	}
	if _, failed := f.WriteAt(text, 0); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// A disk that others fill at once, while the other members write, does not end the member: the reserve is real. It is
// taken again when there is space.
func TestFullDiskOfFollower(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.node("head0")
	url := first.cfg.URL
	first.cfg.URL = ""
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	s.eventually("its address", func(ctx context.Context) error { return first.SetURL(ctx, url) })
	small := s.node("head1")
	small.cfg.Dir = smallDisk(t, "400m")
	s.joinNode(first, small)
	rest := fill(t, small.cfg.Dir)
	value := strings.Repeat("x", 256<<10)
	for range 160 { // more than the database has left in its pages
		s.eventually("write by the other", func(ctx context.Context) error {
			_, err := first.Client().Put(ctx, "big", value)
			return err
		})
	}
	s.eventually("have what the other wrote", func(context.Context) error {
		select {
		case err := <-small.Failed():
			t.Fatalf("the member with the full disk ended: %v", err)
		default:
		}
		if small.Revision() < first.Revision() {
			return errors.New("behind")
		}
		return nil
	})
	if err := small.CheckSpace(); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("its own writes are accepted: %v", err)
	}
	if err := os.Remove(rest); err != nil {
		t.Fatal(err)
	}
	s.eventually("take the reserve again", func(context.Context) error {
		_, err := os.Stat(filepath.Join(small.cfg.Dir, "reserve"))
		return errors.Join(err, small.CheckSpace())
	})
}
