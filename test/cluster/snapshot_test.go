package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A head that is far behind gets the whole store. Where its disk has no space for it beside the reserve, the snapshot
// is refused before the reserve is used, and the head lives. When there is space, it catches up by itself.
func TestSnapshotLeavesTheReserve(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	s := newHeads(t, newHistory(seedOf(t)), three(t))
	last := s.heads[2]
	last.kill()
	s.fillStore(t)
	fill := filepath.Join(last.data, "fill")
	db, err := os.Stat(filepath.Join(s.heads[0].data, "store/etcd/member/snap/db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a database of %d MiB", db.Size()>>20)
	occupy(t, fill, 32<<20+db.Size()/2) // what of the reserve is not allocated, and half a snapshot
	if err = last.start(""); err != nil {
		t.Fatal(err)
	}
	s.await(t, func() error {
		text, err := os.ReadFile(s.path(last.port + ".log"))
		if err == nil && !strings.Contains(string(text), "no space for the store's snapshot") {
			err = fmt.Errorf("the snapshot is not refused, with %d MiB free; the end of its log: %s",
				freeOf(t, last.data)>>20, last.logEnd())
		}
		return err
	})
	for i := range 20 { // it is sent again meanwhile
		if free := freeOf(t, last.data); free < 24<<20 {
			t.Fatalf("%d MiB are free while a snapshot is sent", free>>20)
		}
		if err := s.writeBy(t.Context(), s.heads[0], fmt.Sprint("meanwhile", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := last.ready(t.Context()); err != nil {
		t.Error(err)
	}
	for _, end := range s.history.Deaths {
		t.Error(end)
	}
}

// fillStore makes the database grow by tens of MB in more writes than the heads keep in their logs.
func (s *site) fillStore(t *testing.T) {
	t.Helper()
	c, err := s.client(healTimeout, s.heads[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.Of[trivet.Secret](c)
	all, ctx := errgroup.WithContext(t.Context())
	for i := range 8 {
		all.Go(func() error {
			name := fmt.Sprint(ballastName, i)
			if _, err := secrets.Create(ctx, newBallast(name)); err != nil {
				return err
			}
			for range 800 {
				if _, err := secrets.Patch(ctx, name, ballast(2), 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

// await waits until a function succeeds.
func (s *site) await(t *testing.T, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), healTimeout)
	defer cancel()
	if err := testhead.Eventually(ctx, try); err != nil {
		t.Fatal(err)
	}
}

// occupy uses the free space of a disk up to some bytes.
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
