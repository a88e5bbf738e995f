// Package faultfs is a disk that fails as disks do, for tests: a file system (FUSE, so Linux and root) over a
// directory, that syncs slowly, has errors or becomes read-only, and that loses at a power cut what was not synced.
//
// What lasts is what ext4 and XFS guarantee, and no more: a file's bytes and size since its last fsync or fdatasync are
// lost; so are creates, renames and removals in a directory, until the directory or a file in it is synced. After a sync
// that failed the kernel takes the file's pages for written: it shows them until it needs their memory, and the next
// sync does not write them.
//
// A process that maps files of it, as a head does, must be another one than the file system's: Go's scheduler cannot
// run while it waits for a page that it has to deliver itself. Plain reads and writes are safe.
package faultfs

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Faults are what the disk does now; the zero value is a good one.
type Faults struct {
	SyncDelay, WriteDelay time.Duration // each waits this long, or until the next Set
	SyncError, WriteError syscall.Errno // each fails with this, having done nothing; allocation counts as a write
	SyncErrors            int           // how many syncs fail with SyncError; 0: all
	ReadError             syscall.Errno // reads of the files' bytes fail with this, also of what was read before
	From, To              int64         // only reads of bytes from From on and before To; To 0: all
	ReadOnly              bool          // all changes, and syncs, fail with EROFS, as after errors=remount-ro of ext4
	Lie                   bool          // syncs succeed without making anything durable
	Under                 string        // only what is under this directory or file, as "data/store"; empty: all
	Match                 string        // only files whose name is of this pattern of path.Match; empty: all
}

// FS is a mounted file system.
type FS struct {
	backing, mountpoint string
	server              *fuse.Server
	root                *fs.Inode
	connection          string // the kernel's number of it

	mu      sync.Mutex // guards what follows, and all changes of the directory
	faults  Faults
	changed chan struct{}     // closed and replaced by Set
	dirty   map[inode][]write // not synced, oldest first
	files   map[inode]*os.File
	renames []rename // of names, not synced, oldest first
	removed int      // how many files were ever moved to the trash
	syncs   int
}

// The backing directory holds the files, and those that were removed but would be back after a power cut.
const (
	filesDir = "files"
	trashDir = "trash"
)

// Mount makes a disk at an existing directory, with its files in backing, which is made where it is not there. Two
// disks need two directories.
func Mount(backing, mountpoint string) (*FS, error) {
	f := &FS{backing: backing, mountpoint: mountpoint, changed: make(chan struct{})}
	f.forget()
	for _, dir := range []string{filesDir, trashDir} {
		if err := os.MkdirAll(filepath.Join(backing, dir), 0o755); err != nil {
			return nil, err
		}
	}
	return f, f.mount()
}

// Dir is where the disk is mounted.
func (f *FS) Dir() string { return f.mountpoint }

// Set changes what the disk does from now on, and lets go what was delayed.
func (f *FS) Set(faults Faults) {
	f.mu.Lock()
	f.faults = faults
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	if faults.ReadError != 0 {
		f.uncache(f.root)
	}
}

// uncache makes the kernel read again what it has cached, and what is mapped: without the lock, since it waits for
// reads.
func (f *FS) uncache(n *fs.Inode) {
	for _, child := range n.Children() {
		f.uncache(child)
	}
	if !n.IsDir() {
		_ = n.NotifyContent(0, 0) // it has nothing of a file that is not open
	}
}

// Syncs returns how many syncs of files and directories were requested so far.
func (f *FS) Syncs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.syncs
}

// Cut is a power cut and the disk's return: what was not synced is gone. Who used the disk must have ended (kill -9).
// With a rng, the disk has kept of each file's changes, and of all names', the first few; without, none. The faults
// stay.
func (f *FS) Cut(rng *rand.Rand) error {
	if err := f.unmount(); err != nil {
		return fmt.Errorf("power cut: %w", err)
	}
	f.mu.Lock()
	err := f.undo(rng)
	f.forget()
	f.mu.Unlock()
	if err != nil {
		return fmt.Errorf("power cut: %w", err)
	}
	return f.mount()
}

// Close removes the mount; the files stay in the backing directory. Who used the disk must have ended.
func (f *FS) Close() error {
	f.Set(Faults{})
	if err := f.unmount(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	return nil
}

// before is called ahead of each operation on path, without the lock: it waits and fails as was set.
func (f *FS) before(path string, delay func(Faults) (time.Duration, syscall.Errno)) syscall.Errno {
	f.mu.Lock()
	faults, changed := f.faults, f.changed
	f.mu.Unlock()
	if !f.concerns(faults, path) {
		return 0
	}
	wait, errno := delay(faults)
	if wait > 0 {
		// A signal to the caller does not end this: a disk does not answer EINTR.
		select {
		case <-time.After(wait):
		case <-changed:
		}
	}
	return errno
}

func (f *FS) concerns(faults Faults, path string) bool {
	if ok, _ := filepath.Match(faults.Match, filepath.Base(path)); faults.Match != "" && !ok {
		return false
	}
	under := filepath.Join(f.backing, filesDir, faults.Under)
	return path == under || strings.HasPrefix(path, under+"/")
}

func onWrite(f Faults) (time.Duration, syscall.Errno) {
	return f.WriteDelay, cmp.Or(onChange(f), f.WriteError)
}

func onSync(f Faults) (time.Duration, syscall.Errno) {
	return f.SyncDelay, cmp.Or(onChange(f), f.SyncError)
}

func onChange(f Faults) syscall.Errno {
	if f.ReadOnly {
		return syscall.EROFS
	}
	return 0
}

func onRead(off, n int64) func(Faults) (time.Duration, syscall.Errno) {
	return func(f Faults) (time.Duration, syscall.Errno) {
		if f.To > 0 && (off >= f.To || off+n <= f.From) {
			return 0, 0
		}
		return 0, f.ReadError
	}
}

// changing returns why a path cannot be changed; the lock is held.
func (f *FS) changing(path string) syscall.Errno {
	if !f.concerns(f.faults, path) {
		return 0
	}
	return onChange(f.faults)
}

// sync makes last what was done to a file or directory and, as file systems do, the names in its directory and above.
func (f *FS) sync(n *fs.Inode, path string, in inode, directories []inode) syscall.Errno {
	f.mu.Lock()
	f.syncs++
	f.mu.Unlock()
	if errno := f.before(path, onSync); errno != 0 {
		return f.failSync(n, in, errno)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.faults.Lie && f.concerns(f.faults, path) {
		return 0
	}
	f.settle(in)
	return fs.ToErrno(f.settleNames(directories))
}

// failSync takes from the disk what a sync did not write, and leaves it in the kernel's cache. The lock is not held
// meanwhile: the kernel may wait for reads.
func (f *FS) failSync(n *fs.Inode, in inode, errno syscall.Errno) syscall.Errno {
	f.mu.Lock()
	f.countError()
	lost, err := f.drop(in)
	f.mu.Unlock()
	for off, data := range lost {
		if errno := n.WriteCache(off, data); errno != 0 && err == nil {
			err = errno
		}
	}
	if err != nil {
		return fs.ToErrno(err)
	}
	return errno
}

// countError counts a sync that failed; the lock is held.
func (f *FS) countError() {
	if f.faults.SyncErrors > 0 {
		if f.faults.SyncErrors--; f.faults.SyncErrors == 0 {
			f.faults.SyncError = 0
		}
	}
}
