package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/trivet-project/trivet"
)

// CheckNotRunning returns an error if another process runs the member in a directory.
func CheckNotRunning(dir string) error {
	f, err := lockDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// lockDir locks the directory for this process, until the file is closed or the process ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		return nil, &trivet.Error{Op: "lock data directory", Name: dir,
			Err:  fmt.Errorf("%w: process %s is using it", trivet.ErrUnavailable, strings.TrimSpace(string(pid))),
			Hint: "stop that process, or use another directory with --data-dir"}
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}
