package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

// A member that is behind gets the whole database. Where its disk has no space for it beside the reserve, it is refused
// before the reserve is used, and after that unread. When there is space, the member catches up by itself.
//
// It runs by itself, as it writes much: other members would lose their leaders.
func TestSnapshotLeavesTheReserve(t *testing.T) {
	s := newSite(t)
	first := s.node("head0")
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	second := s.node("head1")
	second.cfg.Dir = smallDisk(t, "400m")
	s.joinNode(first, second)
	third := s.join(first, "head2") // the quorum without the second
	second.Close()
	second.running.Store(nil)
	for i := range 40 {
		s.put(first, fmt.Sprint("large/", i), strings.Repeat("x", 1<<20))
	}
	s.putMany(first, 3000) // more than the log that members keep

	const room = 140 << 20 // of these are 128 the reserve; a start needs a few
	ballast := filepath.Join(second.cfg.Dir, "ballast")
	occupy(t, ballast, room)
	s.run(second)
	refused := func(context.Context) error {
		for _, line := range s.log.errors() {
			if strings.Contains(line, "no space for the store's snapshot") {
				return nil
			}
		}
		return errors.New("not refused")
	}
	s.eventually("refuse the snapshot", refused)
	for range 100 { // others follow at once
		if free := freeOf(t, second.cfg.Dir); free < 24<<20 {
			t.Fatalf("%d MiB are free while a snapshot arrives", free>>20)
		}
		s.put(third, "k", "v")
	}
	select {
	case err := <-second.Failed():
		t.Fatalf("the member failed: %v", err)
	default:
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.eventually("catch up", func(ctx context.Context) error {
		got, err := second.Client().Get(ctx, "large/39", clientv3.WithSerializable(), clientv3.WithCountOnly())
		if err == nil && got.Count != 1 {
			err = errors.New("still behind")
		}
		return err
	})
}

// put writes a key, also while there is no leader.
func (s *site) put(n *node, key, value string) {
	s.Helper()
	s.eventually("write", func(ctx context.Context) error {
		_, err := n.Client().Put(ctx, key, value)
		return err
	})
}

// putMany makes many writes, several at the same time.
func (s *site) putMany(n *node, count int) {
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range count / 50 {
				s.put(n, "small", "v")
			}
		})
	}
	all.Wait()
}

// occupy fills a file system up to a number of free bytes.
func occupy(t *testing.T, file string, left int64) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, freeOf(t, filepath.Dir(file))-left); err != nil {
		t.Fatal(err)
	}
}

func freeOf(t *testing.T, dir string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Bavail) * fs.Bsize
}
