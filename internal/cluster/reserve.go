package cluster

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// reserve is space of the file system that is kept for the member, since a disk may be filled by others at any time:
// most of it by a file, which is removed when the disk is full, and the next pages of the database by blocks that it
// owns already. (etcd does the same for its log: the current and the next segment are allocated.)
type reserve struct {
	dir  string
	size int64        // with what is only left free; 0: none
	held atomic.Int64 // bytes of the file
	next time.Time    // when to try again to allocate it
	grew int64        // size of the database when blocks were allocated for it last
}

const (
	reserveName     = "reserve"
	reserveInterval = 100 * time.Millisecond
	// retryInterval is the time between two attempts to allocate the file, on a file system that cannot.
	retryInterval = time.Minute
	// pagesAhead is how many bytes are allocated for the database behind its end.
	pagesAhead = 16 << 20
)

func newReserve(dir string, size int64) *reserve {
	return &reserve{dir: dir, size: max(0, cmp.Or(size, DefaultReserve))}
}

// reserveHeld returns the bytes that the file of an earlier start holds. A start begins without it.
func reserveHeld(dir string) int64 {
	var held int64
	for _, path := range []string{filepath.Join(dir, reserveName), filepath.Join(dir, "store", reserveName)} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			held += info.Size()
		}
	}
	return held
}

// watch keeps the reserve until closing is closed.
func (r *reserve) watch(closing <-chan struct{}) {
	tick := time.NewTicker(reserveInterval)
	defer tick.Stop()
	for {
		r.keep()
		select {
		case <-closing:
			return
		case <-tick.C:
		}
	}
}

// keep gives the file's space to the member when the disk is full, and takes it again when there is space.
func (r *reserve) keep() {
	free, err := freeIn(r.dir)
	switch held := r.held.Load(); {
	case r.size == 0 || err != nil:
		return
	case held > 0 && free < r.size/8:
		r.remove()
	case held == 0 && free >= r.size && !time.Now().Before(r.next):
		r.take()
	}
	r.allocatePages()
}

// take allocates three quarters of the reserve. It does nothing on a file system that cannot allocate.
func (r *reserve) take() {
	f, err := os.OpenFile(filepath.Join(r.dir, reserveName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	size := r.size / 4 * 3
	if unix.Fallocate(int(f.Fd()), 0, 0, size) != nil {
		r.remove()
		r.next = time.Now().Add(retryInterval)
		return
	}
	r.held.Store(size)
}

func (r *reserve) remove() {
	r.held.Store(0)
	_ = os.Remove(filepath.Join(r.dir, reserveName))
}

// allocatePages allocates the blocks of the database, and of what it grows by next: etcd does not survive if they
// cannot be written.
func (r *reserve) allocatePages() {
	f, err := os.OpenFile(filepath.Join(r.dir, "etcd/member/snap/db"), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == r.grew {
		return
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, info.Size()+pagesAhead)
	if !errors.Is(err, unix.ENOSPC) { // else when there is space
		r.grew = info.Size()
	}
}
