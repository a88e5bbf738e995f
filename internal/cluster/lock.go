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

// CheckNotRunning fails where another process runs the member in a folder.
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

// lockDir makes this process the only one that uses the folder, until the file is closed or the process ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		return nil, &trivet.Error{Op: "lock data folder", Name: dir, Hint: "stop it, or give this head a folder of its own with --data-dir",
			Err: fmt.Errorf("%w: process %s uses it", trivet.ErrUnavailable, strings.TrimSpace(string(pid)))}
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	return f, nil
}
