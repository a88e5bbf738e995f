package recovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
)

// The names in a directory of backups.
const (
	suffix   = ".backup"
	blobsDir = "blobs"    // contents of blobs, by the hex digits of their digests
	partial  = ".partial" // what the names of files begin with that are not complete
	lockName = ".lock"
)

// Dir is a directory of backups that this process writes to. No other one does meanwhile: what is partial there is of
// a process that ended, and blobs without a backup are of none that is being made.
type Dir struct {
	path string
	lock *os.File
}

// OpenDir locks a directory of backups. It creates one that does not exist, if create is set.
func OpenDir(path string, create bool) (d *Dir, err error) {
	if create {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, explain("open the directory of backups", path, err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, explain("open the directory of backups", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, &trivet.Error{Op: "open the directory of backups", Name: path,
			Err:  fmt.Errorf("%w: another backup or prune uses it", trivet.ErrConflict),
			Hint: "wait until that one is complete"}
	}
	d = &Dir{path, f}
	if err := d.removePartial(); err != nil {
		d.Close()
		return nil, explain("open the directory of backups", path, err)
	}
	return d, nil
}

// Close unlocks the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// removePartial removes what interrupted processes left.
func (d *Dir) removePartial() error {
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

// write creates a file: what content writes to it has another name until it is complete, and on the disk.
func write(path string, content func(f *os.File) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, partial+"-")
	if err != nil {
		return err
	}
	err = content(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // the next process removes it where this one cannot
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// nameOf returns the name of the file of a backup. Names of a cluster sort by time.
func nameOf(m *archive.Manifest) string {
	return fmt.Sprintf("%s-%s-r%d%s", m.Cluster, m.Time.UTC().Format("20060102T150405Z"), m.Revision, suffix)
}

// blobPath returns where the content of a blob is, for a directory of backups.
func blobPath(dir, digits string) string { return filepath.Join(dir, blobsDir, digits) }

// isSaved reports whether the content of a blob is there, by its size.
func isSaved(dir string, b trivet.BlobRef) bool {
	digits, ok := archive.DigestOf(b)
	info, err := os.Stat(blobPath(dir, digits))
	return ok && err == nil && info.Mode().IsRegular() && info.Size() == b.Bytes
}
