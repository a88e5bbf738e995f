package cluster

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reserve is space of the file system that is kept for the member, since a disk may be filled by others at any time:
// a part by a file, which is removed when the disk is full, and the next pages of the database by blocks that it owns
// already. (etcd does the same for its log: the current and the next segment are allocated.) The rest is left free.
type reserve struct {
	dir  string
	size int64 // 0: none

	mu    sync.Mutex // guards following
	file  int64      // bytes of the file
	pages int64      // bytes that are allocated behind the end of the database
	grew  int64      // size of the database when they were
	next  time.Time  // when to try again to allocate the file
}

const (
	reserveName     = "reserve"
	reserveInterval = 50 * time.Millisecond
	// retryInterval is the time between two attempts to allocate the file, on a file system that cannot.
	retryInterval = time.Minute
)

func newReserve(dir string, size int64) *reserve {
	return &reserve{dir: dir, size: max(0, cmp.Or(size, DefaultReserve))}
}

// part is the size of the file, and of what is allocated for the database.
func (r *reserve) part() int64 { return r.size / 8 * 3 }

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

// left returns the free bytes, and how many must be free: the reserve without what is allocated.
func (r *reserve) left() (free, need int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	free, err = freeIn(r.dir)
	return free, r.size - r.file - r.pages, err
}

// watch keeps the reserve until closing is closed.
func (r *reserve) watch(closing <-chan struct{}) {
	tick := time.NewTicker(reserveInterval)
	defer tick.Stop()
	for {
		select {
		case <-closing:
			return
		case <-tick.C:
			r.keep()
		}
	}
}

// keep gives the file's space to the member when the disk is full, and takes it again when there is space.
func (r *reserve) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size == 0 {
		return
	}
	free, err := freeIn(r.dir)
	switch {
	case err != nil:
		return
	case r.file > 0 && free < r.size/8:
		r.remove()
	case r.file == 0 && free >= r.size-r.pages && !time.Now().Before(r.next):
		r.take()
	}
	r.allocatePages()
}

// take allocates the file, where the file system can. r.mu is held.
func (r *reserve) take() {
	f, err := os.OpenFile(filepath.Join(r.dir, reserveName), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), 0, 0, r.part()) != nil {
		r.remove()
		r.next = time.Now().Add(retryInterval)
		return
	}
	r.file = r.part()
}

// remove removes the file. r.mu is held.
func (r *reserve) remove() {
	r.file = 0
	_ = os.Remove(filepath.Join(r.dir, reserveName))
}

// allocatePages allocates the blocks of the database, and of what it grows by next: etcd does not survive if they
// cannot be written. r.mu is held.
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
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, info.Size()+r.part())
	switch {
	case err == nil:
		r.grew, r.pages = info.Size(), r.part()
	case !errors.Is(err, unix.ENOSPC): // the file system cannot allocate
		r.grew, r.pages = info.Size(), 0
	}
}
