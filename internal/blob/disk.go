package blob

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// room says whether n bytes more leave the reserve free.
func (s *Store) room(n int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.dir, &fs); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if left := int64(fs.Bavail)*fs.Bsize - s.opts.Reserve; n > left {
		return s.noSpace(fmt.Errorf("%d bytes are needed and %d are left", n, max(left, 0)))
	}
	return nil
}

// full makes an error of the folder one that says what to do.
func (s *Store) full(err error) error {
	var told *trivet.Error
	switch {
	case err == nil || errors.As(err, &told):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return s.noSpace(err)
	}
	return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
}

func (s *Store) noSpace(err error) error {
	return &trivet.Error{Op: "store blob", Err: fmt.Errorf("%w: %w", errFull, err),
		Hint: "free space in " + s.dir + ", or delete images that are no longer used"}
}

var errFull = fmt.Errorf("%w: the disk is full", trivet.ErrUnavailable)
