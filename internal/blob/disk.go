package blob

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// checkSpace returns an error if n more bytes would use the reserve.
func (s *Store) checkSpace(n int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.dir, &fs); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if left := int64(fs.Bavail)*fs.Bsize - s.opts.Reserve; n > left {
		return s.noSpace(fmt.Errorf("%d bytes needed, %d available", n, max(left, 0)))
	}
	return nil
}

// diskError wraps an error of the directory, with a hint if the disk is full.
func (s *Store) diskError(err error) error {
	var terr *trivet.Error
	switch {
	case err == nil || errors.As(err, &terr):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return s.noSpace(err)
	}
	return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
}

func (s *Store) noSpace(err error) error {
	return &trivet.Error{Op: "store blob", Err: fmt.Errorf("%w: %w", errFull, err),
		Hint: "free space in " + s.dir + ", or delete unused images"}
}

var errFull = fmt.Errorf("%w: the disk is full", trivet.ErrUnavailable)
