package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
)

// The names in a directory of backups that are not those of a place.
const (
	partial  = ".partial" // what the names of files begin with that are not complete
	lockName = ".lock"
)

// dir is a directory of backups.
type dir struct {
	path     string
	existing bool
	reserve  int64
}

// Path returns the path of a file.
func (d dir) Path(name string) string { return filepath.Join(d.path, name) }

// List lists a directory.
func (d dir) List(_ context.Context, name string) (map[string]int64, error) {
	entries, err := os.ReadDir(d.Path(name))
	if name != "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partial) {
			continue
		}
		sizes[e.Name()] = -1
		if info, err := os.Stat(d.Path(filepath.Join(name, e.Name()))); err == nil && info.Mode().IsRegular() {
			sizes[e.Name()] = info.Size()
		}
	}
	return sizes, nil
}

// Open opens a file.
func (d dir) Open(_ context.Context, name string) (archive.Source, error) {
	f, err := os.Open(d.Path(name))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return diskFile{f, info.Size()}, nil
}

// diskFile is a file that is read.
type diskFile struct {
	*os.File
	size int64
}

func (f diskFile) Size() int64                 { return f.size }
func (f diskFile) Range(at, n int64) io.Reader { return io.NewSectionReader(f, at, n) }

// Lock locks the directory.
func (d dir) Lock(_ context.Context, create bool) (writer, error) {
	if create && !d.existing {
		if err := os.MkdirAll(d.path, 0o700); err != nil {
			return nil, err
		}
	}
	f, err := os.OpenFile(d.Path(lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, &trivet.Error{Op: "open the directory of backups", Name: d.path,
			Err:  fmt.Errorf("%w: another backup or prune uses it", ErrBusy),
			Hint: "wait until that one is complete"}
	}
	if err := d.removePartial(); err != nil {
		f.Close()
		return nil, err
	}
	return &dirWriter{d, f}, nil
}

// removePartial removes what interrupted processes left.
func (d dir) removePartial() error {
	left, err := filepath.Glob(filepath.Join(escapeGlob(d.path), partial+"*"))
	blobs, err2 := filepath.Glob(filepath.Join(escapeGlob(d.path), blobsDir, partial+"*"))
	err = errors.Join(err, err2)
	for _, path := range append(left, blobs...) {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// escapeGlob makes a path a pattern that matches only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// dirWriter is a directory of backups that this process has locked.
type dirWriter struct {
	dir
	lock *os.File
}

// Close unlocks the directory.
func (d *dirWriter) Close() error { return d.lock.Close() }

// Space compares with the free space of the disk.
func (d *dirWriter) Space(bytes int64) error { return checkSpace(d.path, bytes+d.reserve) }

// Create creates a file under another name.
func (d *dirWriter) Create(_ context.Context, name string, size int64) (newFile, error) {
	if err := d.Space(size); err != nil {
		return nil, err
	}
	path := d.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return createFile(path)
}

// Remove removes files, and writes that to the disk.
func (d *dirWriter) Remove(_ context.Context, names []string) error {
	dirs := map[string]bool{}
	for _, name := range names {
		if err := os.Remove(d.Path(name)); err != nil {
			return err
		}
		dirs[filepath.Dir(d.Path(name))] = true
	}
	for path := range dirs {
		if err := syncDir(path); err != nil {
			return err
		}
	}
	return nil
}
