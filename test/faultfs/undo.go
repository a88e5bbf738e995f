package faultfs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// inode names a file or directory of the backing directory, whatever its path is. It is not reused while we hold
// it open.
type inode struct{ dev, ino uint64 }

func inodeOf(path string) (inode, error) {
	var st syscall.Stat_t
	err := syscall.Lstat(path, &st)
	return inode{st.Dev, st.Ino}, err
}

// write is what undoes a change of a file: the bytes that were there, then the size that it had.
type write struct {
	off  int64
	old  []byte
	size int64
	n    int64 // bytes that were written; 0 where the size was set
}

// rename is a change of names: a new name (to), a removal (to, with what was there in trash), or a rename.
type rename struct {
	from, to place
	trash    string // path of what was at to
}

// place is a name in an open directory.
type place struct {
	dir  *directory
	name string
}

type directory struct {
	fd int
	in inode
}

func openDir(path string) (*directory, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	in, err := inodeOf(path)
	return &directory{fd, in}, err
}

func (d *directory) close() error { return unix.Close(d.fd) }

// isGone reports whether the directory does not exist any more.
func (d *directory) isGone() bool {
	var st unix.Stat_t
	return unix.Fstat(d.fd, &st) == nil && st.Nlink == 0
}

func (p place) path() string { return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir.fd, p.name) }

func (r rename) close() {
	for _, p := range []place{r.from, r.to} {
		if p.dir != nil {
			_ = p.dir.close()
		}
	}
}

func (r rename) isIn(directories []inode) bool {
	return slices.Contains(directories, r.to.dir.in) || r.from.dir != nil && slices.Contains(directories, r.from.dir.in)
}

// remember notes what a write of n bytes at off will replace; the lock is held.
func (f *FS) remember(file *os.File, off, n int64) error { return f.note(file, off, n, n) }

// note notes a change of n bytes at off that writes some.
func (f *FS) note(file *os.File, off, n, written int64) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(file.Fd()), &st); err != nil {
		return err
	}
	in := inode{st.Dev, st.Ino}
	if f.files[in] == nil {
		own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		f.files[in] = own
	}
	w := write{off: off, size: st.Size, n: written, old: make([]byte, max(0, min(n, st.Size-off)))}
	if _, err := f.files[in].ReadAt(w.old, off); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	f.dirty[in] = append(f.dirty[in], w)
	return nil
}

// rememberTail notes what setting the size will cut off.
func (f *FS) rememberTail(file *os.File, size int64) error {
	return f.note(file, size, 1<<62, 0)
}

func (f *FS) rememberPath(path string, size int64) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.rememberTail(file, size)
}

// settle records that a file's changes are synced.
func (f *FS) settle(in inode) {
	delete(f.dirty, in)
	if file := f.files[in]; file != nil {
		_ = file.Close()
		delete(f.files, in)
	}
}

// drop takes a file's writes from the disk, and returns the pages that they were in, by offset.
func (f *FS) drop(in inode) (lost map[int64][]byte, err error) {
	file := f.files[in]
	if file == nil || len(f.dirty[in]) == 0 {
		return nil, nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	lost = map[int64][]byte{}
	for _, w := range f.dirty[in] {
		w.n = min(w.n, max(0, info.Size()-w.off))
		page := int64(os.Getpagesize())
		for off := w.off / page * page; off < w.off+w.n; off += page {
			lost[off] = make([]byte, min(page, info.Size()-off))
			if _, err := file.ReadAt(lost[off], off); err != nil {
				return nil, err
			}
		}
	}
	for _, w := range slices.Backward(f.dirty[in]) {
		old := append(w.old, make([]byte, max(0, w.n-int64(len(w.old))))...)
		if _, err := file.WriteAt(old[:min(w.n, max(0, info.Size()-w.off))], w.off); err != nil {
			return nil, err
		}
	}
	f.dirty[in] = []write{{size: f.dirty[in][0].size}} // which the next sync makes last
	return lost, nil
}

// settleNames makes changes of names in directories last.
func (f *FS) settleNames(directories []inode) (err error) {
	f.renames = slices.DeleteFunc(f.renames, func(r rename) bool {
		if !r.isIn(directories) {
			return false
		}
		if r.trash != "" {
			err = errors.Join(err, os.RemoveAll(r.trash))
		}
		r.close()
		return true
	})
	return err
}

// undo reverts what would be lost, the latest first.
func (f *FS) undo(rng *rand.Rand) (err error) {
	keep := func(n int) int {
		if rng == nil {
			return 0
		}
		return rng.IntN(n + 1)
	}
	for in, writes := range f.dirty {
		for _, w := range slices.Backward(writes[keep(len(writes)):]) {
			_, werr := f.files[in].WriteAt(w.old, w.off)
			err = errors.Join(err, werr, f.files[in].Truncate(w.size))
		}
	}
	for _, r := range slices.Backward(f.renames[keep(len(f.renames)):]) {
		err = errors.Join(err, r.undo())
	}
	return err
}

func (r rename) undo() (err error) {
	if r.to.dir.isGone() || r.from.dir != nil && r.from.dir.isGone() { // with what was in it: its removal was synced
		return nil
	}
	switch {
	case r.from.dir != nil:
		err = unix.Renameat(r.to.dir.fd, r.to.name, r.from.dir.fd, r.from.name)
	case r.trash == "":
		err = os.RemoveAll(r.to.path())
	}
	if r.trash != "" {
		err = errors.Join(err, unix.Renameat(unix.AT_FDCWD, r.trash, r.to.dir.fd, r.to.name))
	}
	return err
}

// forget clears the list of what is not synced: the present state is kept.
func (f *FS) forget() {
	for _, file := range f.files {
		_ = file.Close()
	}
	for _, r := range f.renames {
		r.close()
	}
	f.dirty, f.files, f.renames = map[inode][]write{}, map[inode]*os.File{}, nil
	entries, _ := os.ReadDir(filepath.Join(f.backing, trashDir)) // none, before the first mount
	for _, e := range entries {
		_ = os.RemoveAll(filepath.Join(f.backing, trashDir, e.Name()))
	}
}
