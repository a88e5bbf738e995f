package recovery

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// tempFile is a file with another name until it is whole, and on the disk.
type tempFile struct {
	*os.File
	path      string
	published bool
}

func createFile(path string) (*tempFile, error) {
	f, err := os.CreateTemp(filepath.Dir(path), partial+"-")
	if err != nil {
		return nil, err
	}
	return &tempFile{File: f, path: path}, nil
}

// Publish writes the file to the disk and gives it its name.
func (f *tempFile) Publish(_ context.Context, replace bool) error {
	if _, err := os.Lstat(f.path); err == nil && !replace {
		return trivet.ErrExists
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return err
	}
	f.published = true
	return syncDir(filepath.Dir(f.path))
}

// Discard removes the file. Where it cannot, the next process does.
func (f *tempFile) Discard() {
	if !f.published {
		f.Close()
		os.Remove(f.Name())
	}
}

// write creates a file: what content writes to it has another name until it is complete, and on the disk.
func write(path string, content func(f *os.File) error) error {
	f, err := createFile(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := content(f.File); err != nil {
		return err
	}
	return f.Publish(context.Background(), true)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// checkSpace returns ENOSPC where a directory has not enough free space.
func checkSpace(dir string, need int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < need {
		return fmt.Errorf("%d MiB free in %s, %d MiB needed: %w", free>>20, dir, need>>20+1, syscall.ENOSPC)
	}
	return nil
}
