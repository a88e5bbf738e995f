// Package runlog keeps the output of workflow actions as files on one head:
// <project>/<workflow>/<action>.<epoch>.<attempt>.log. A run is named by its full name.
// An agent sends pieces with their offset, so a duplicate changes nothing, and pieces that were sent to another head
// leave a hole of zeros. Two agents never write to one file: each has an epoch of its own.
package runlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// MaxBytes bounds the log of one attempt of one action. The agent limits its output too.
const MaxBytes = 16 << 20

// MaxAttempt bounds the attempts of one action that have a log, and MaxParts all attempts of a workflow that do: an
// agent may invent them.
const (
	MaxAttempt = 1000
	MaxParts   = 256
)

// Store is a directory of logs.
type Store struct {
	root    *os.Root
	reserve int64 // of the disk's bytes, which logs do not use
	fault   func(error)
	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed and replaced by each Append
}

// Part is the log of one attempt of one action.
type Part struct {
	trivet.LogKey
	Bytes int64 `json:"bytes"` // end of the last piece
}

// Open opens or creates the directory. Logs stop growing when the disk has only a reserve left, in bytes. fault is
// called with each error of the disk itself; it may be nil, and must not block.
func Open(dir string, reserve int64, fault func(error)) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open logs: %w", err)
	}
	return &Store{root: root, reserve: reserve, fault: fault, changed: make(chan struct{})}, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.root.Close() }

// Append writes a piece at its offset and syncs it to stable storage. Bytes beyond MaxBytes are dropped. It fails with
// ErrTooLarge where the workflow has MaxParts logs already, and with ErrUnavailable where the disk is full
// or fails.
func (s *Store) Append(workflow string, key trivet.LogKey, offset int64, piece []byte) error {
	name, err := fileName(workflow, key)
	if err != nil {
		return err
	}
	if offset < 0 || offset >= MaxBytes || len(piece) == 0 {
		return nil
	}
	if err := s.write(workflow, name, offset, piece[:min(int64(len(piece)), MaxBytes-offset)]); err != nil {
		return fmt.Errorf("append to log of %s: %w", workflow, s.faulty(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *Store) write(workflow, name string, offset int64, piece []byte) error {
	if err := s.checkSpace(int64(len(piece))); err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = s.create(workflow, name)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(piece, offset)
	return errors.Join(err, f.Sync(), f.Close())
}

// faulty reports an error of the disk, with which another head may serve.
func (s *Store) faulty(err error) error {
	if !errors.Is(err, unix.EIO) && !errors.Is(err, unix.EROFS) {
		return err
	}
	if s.fault != nil {
		s.fault(err)
	}
	return fmt.Errorf("%w: the disk of this head fails: %w", trivet.ErrUnavailable, err)
}

// create creates a file and syncs its directory entry.
func (s *Store) create(workflow, name string) (*os.File, error) {
	parts, err := s.Parts(workflow)
	if err == nil && len(parts) >= MaxParts {
		err = fmt.Errorf("%w: it has %d parts, at most %d", trivet.ErrTooLarge, len(parts)+1, MaxParts)
	}
	if err != nil {
		return nil, err
	}
	project, _ := trivet.SplitName(workflow)
	if err := errors.Join(s.mkdir(".", project), s.mkdir(project, workflow)); err != nil {
		return nil, err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := s.syncDir(workflow); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkSpace returns an error if n more bytes would use the reserve: the store and the blobs of this head need it.
func (s *Store) checkSpace(n int64) error {
	if s.reserve == 0 {
		return nil
	}
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &disk); err != nil {
		return err
	}
	if int64(disk.Bavail)*disk.Bsize-s.reserve < n {
		return fmt.Errorf("%w: the disk is full", trivet.ErrUnavailable)
	}
	return nil
}

// mkdir creates a directory that may exist and syncs its entry in its parent.
func (s *Store) mkdir(parent, name string) error {
	err := s.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.syncDir(parent)
}

func (s *Store) syncDir(name string) error {
	dir, err := s.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Parts lists the logs of a workflow, in order of modification.
func (s *Store) Parts(workflow string) ([]Part, error) {
	if err := trivet.ValidateFullName(workflow); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(s.root.FS(), workflow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list logs of %s: %w", workflow, s.faulty(err))
	}
	infos := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	var parts []Part
	for _, info := range infos {
		if key, ok := parseName(info.Name()); ok {
			parts = append(parts, Part{key, info.Size()})
		}
	}
	return parts, nil
}

// Read reads one part from an offset into p and returns the number of bytes, which is less than len(p) at the end.
// Zeros are holes.
func (s *Store) Read(workflow string, key trivet.LogKey, offset int64, p []byte) (int, error) {
	name, err := fileName(workflow, key)
	if err != nil {
		return 0, err
	}
	if offset < 0 || offset > MaxBytes {
		return 0, &trivet.FieldError{Field: "offset", Problem: fmt.Sprintf("must be 0 to %d", MaxBytes)}
	}
	f, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = trivet.ErrNotFound
	}
	n := 0
	if err == nil {
		n, err = f.ReadAt(p, offset)
		_ = f.Close() // only read
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("read log of %s: %w", workflow, s.faulty(err))
	}
	return n, nil
}

// Changed returns a channel that is closed by the next Append to any log.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Workflows lists the workflows that have logs, by full name.
func (s *Store) Workflows() (names []string, err error) {
	dirs, err := fs.Glob(s.root.FS(), "*/*")
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	for _, dir := range dirs {
		if trivet.ValidateFullName(dir) == nil {
			names = append(names, dir)
		}
	}
	return names, nil
}

// LastWritten returns the time of the last write to a workflow's logs.
func (s *Store) LastWritten(workflow string) (last time.Time, err error) {
	if err := trivet.ValidateFullName(workflow); err != nil {
		return last, err
	}
	err = fs.WalkDir(s.root.FS(), workflow, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
		return err
	})
	if err != nil {
		return last, fmt.Errorf("read logs of %s: %w", workflow, err)
	}
	return last, nil
}

// Remove deletes all logs of a workflow.
func (s *Store) Remove(workflow string) error {
	if err := trivet.ValidateFullName(workflow); err != nil {
		return err
	}
	return s.root.RemoveAll(workflow)
}

func fileName(workflow string, key trivet.LogKey) (string, error) {
	if err := errors.Join(trivet.ValidateFullName(workflow), CheckKey(key)); err != nil {
		return "", err
	}
	return path.Join(workflow, fmt.Sprintf("%s.%d.%d.log", key.Action, key.Epoch, key.Attempt)), nil
}

// CheckKey reports what is wrong with a key.
func CheckKey(key trivet.LogKey) error {
	if key.Attempt < 1 || key.Attempt > MaxAttempt {
		return &trivet.FieldError{Field: "attempt", Problem: fmt.Sprintf("must be 1 to %d", MaxAttempt)}
	}
	if key.Epoch < 1 {
		return &trivet.FieldError{Field: "epoch", Problem: "must be at least 1"}
	}
	return trivet.ValidateName(key.Action)
}

// parseName is the inverse of fileName. ok is false for any other name.
func parseName(name string) (key trivet.LogKey, ok bool) {
	base, attempt := cutNumber(strings.TrimSuffix(name, ".log"))
	action, epoch := cutNumber(base)
	key = trivet.LogKey{Action: action, Epoch: epoch, Attempt: int(attempt)}
	built, err := fileName("any/any", key)
	return key, err == nil && built == "any/any/"+name
}

// cutNumber splits a name at its last dot; the number is 0 where there is none.
func cutNumber(name string) (base string, number int64) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", 0
	}
	number, err := strconv.ParseInt(name[dot+1:], 10, 64)
	if err != nil {
		return "", 0
	}
	return name[:dot], number
}
