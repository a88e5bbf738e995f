package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// checkSpace returns an error if n more bytes would use the reserve, or exceed the quota.
func (s *Store) checkSpace(n int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if left := int64(st.Bavail)*st.Bsize - s.opts.Reserve; n > left {
		return s.noSpace(fmt.Errorf("%d bytes needed, %d available", n, max(left, 0)))
	}
	return s.checkQuota(n)
}

func (s *Store) checkQuota(n int64) error {
	if s.opts.Quota == 0 {
		return nil
	}
	used, err := s.Usage()
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if left := s.opts.Quota - used; n > left {
		return &trivet.Error{Op: "store blob", Err: fmt.Errorf("%w: %d bytes needed, %d of %d left", errQuota, n,
			max(left, 0), s.opts.Quota),
			Hint: "delete images and platforms that are not used: their contents are removed a week after their last use; " +
				"or raise --blob-quota of each head"}
	}
	return nil
}

// Usage returns how many bytes the files of the store take on the disk. It reads the directory, which has few files, at
// the begin of each blob and each 64 MiB of one.
func (s *Store) Usage() (int64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return 0, err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			total += st.Blocks * 512
		}
	}
	return total, nil
}

// isFull reports whether an error is that there is no space for a blob.
func isFull(err error) bool { return errors.Is(err, errFull) || errors.Is(err, errQuota) }

// isFaulty reports whether an error is that of a disk that cannot read or write.
func isFaulty(err error) bool { return errors.Is(err, unix.EIO) }

// diskError wraps an error of the directory, with a hint if the disk is full.
func (s *Store) diskError(err error) error {
	var terr *trivet.Error
	switch {
	case err == nil || errors.As(err, &terr):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return s.noSpace(err)
	case isFaulty(err), errors.Is(err, unix.EROFS):
		s.noteFault(err)
		s.failed.Store(true)
		return &trivet.Error{Op: "store blob", Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err), Hint: hintDisk}
	}
	return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
}

// hintDisk is the hint where the disk of the store fails.
const hintDisk = "the disk of that head fails: see its kernel's log (dmesg); use another head until it is replaced"

// tryDisk writes to a new part where the disk has failed before, so that an upload begins at another head instead.
func (s *Store) tryDisk(p *part) error {
	if !s.failed.Load() {
		return nil
	}
	_, err := p.file.WriteAt(make([]byte, 4<<10), 0)
	if err = errors.Join(err, p.file.Sync(), p.file.Truncate(0)); err == nil {
		s.failed.Store(false)
	}
	return s.diskError(err)
}

// noteFault reports an error of the disk.
func (s *Store) noteFault(err error) {
	if s.opts.Fault != nil {
		s.opts.Fault(err)
	}
}

func (s *Store) noSpace(err error) error {
	return &trivet.Error{Op: "store blob", Err: fmt.Errorf("%w: %w", errFull, err),
		Hint: "free space in " + s.dir + ", or delete unused images"}
}

var (
	errFull  = fmt.Errorf("%w: the disk is full", trivet.ErrUnavailable)
	errQuota = fmt.Errorf("%w: the quota of blobs of this head is reached", trivet.ErrUnavailable)
)
