package blob

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Options configure a Store. The zero value is usable.
type Options struct {
	MaxBytes      int64         // of one blob; 0: 1 TiB
	Reserve       int64         // bytes of the file system to leave free
	Quota         int64         // bytes of the directory; 0: none
	MaxUploads    int           // open at the same time; 0: 64
	UploadTimeout time.Duration // removes an idle upload; 0: 24 hours
	// Damaged is called when a blob's file turns out to be damaged, and Repaired when that blob is complete again, or a
	// damaged chunk table was written again; nil: nothing is. They must not block.
	Damaged  func(Digest, error)
	Repaired func(Digest)
	// Fault is called with each error of a disk that cannot read or write; nil: nothing is. It must not block.
	Fault func(error)
}

// Store is a directory of blobs. One process at a time may use it.
type Store struct {
	dir     string
	opts    Options
	lock    *os.File    // locks out other processes
	failed  atomic.Bool // the disk has failed to write
	names   sync.Mutex  // held while the files of a blob are renamed or removed
	mu      sync.Mutex
	uploads map[string]*upload  // guarded by mu
	closed  bool                // guarded by mu
	checked map[Digest]*checked // guarded by mu
	damaged map[Digest]bool     // since the start, and not repaired; guarded by mu
}

// The directory has <hex> and <hex>.chunks of each blob; of incomplete ones <id>.put (removed at the next start),
// <id>.upload and <hex>.pull (resumed after a restart); and <id>.done of a finished upload. A blob exists if <hex>
// does; its chunk table is written before.
const (
	tableSuffix  = ".chunks"
	putSuffix    = ".put"
	uploadSuffix = ".upload"
)

// Open opens or creates the directory, and removes the temporary files of a crashed process.
func Open(dir string, opts Options) (*Store, error) {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, 1<<40)
	opts.MaxUploads = cmp.Or(opts.MaxUploads, 64)
	opts.UploadTimeout = cmp.Or(opts.UploadTimeout, 24*time.Hour)
	s := &Store{dir: dir, opts: opts, uploads: map[string]*upload{}, checked: map[Digest]*checked{},
		damaged: map[Digest]bool{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := s.flock(); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("open blobs: %w", errors.Join(err, s.lock.Close()))
	}
	return s, nil
}

// flock locks the directory: a second process would remove the temporary files of this one.
func (s *Store) flock() (err error) {
	if s.lock, err = os.Open(s.dir); err != nil {
		return err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("%w: %s is in use by another process", trivet.ErrUnavailable, s.dir),
			s.lock.Close())
	}
	return nil
}

// sweep removes stale files and registers the uploads that can be resumed.
func (s *Store) sweep() error {
	s.sweepDone()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, isTable := strings.CutSuffix(e.Name(), tableSuffix)
		if id, ok := strings.CutSuffix(e.Name(), uploadSuffix); ok && isID(id) {
			s.uploads[id] = s.register(id)
			continue
		}
		stale := strings.HasSuffix(e.Name(), putSuffix)
		if base, ok := strings.CutSuffix(e.Name(), pullSuffix); ok {
			stale = s.stalePull(base)
		}
		if _, err := ParseDigest(algorithm + base); isTable && err == nil {
			_, err := os.Lstat(filepath.Join(s.dir, base))
			stale = errors.Is(err, fs.ErrNotExist)
		}
		if stale {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// stalePull reports whether the file of a pull is of no use: the blob is complete, or the pull is too old.
func (s *Store) stalePull(base string) bool {
	d, err := ParseDigest(algorithm + base)
	if err != nil || s.Has(d) {
		return true
	}
	fi, err := os.Lstat(s.path(d) + pullSuffix)
	return err == nil && time.Since(fi.ModTime()) > s.opts.UploadTimeout
}

// Close stops the timers of uploads and unlocks the directory. Uploads can be resumed after the next Open.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, u := range s.uploads {
		u.timer.Stop()
	}
	return s.lock.Close()
}

func (s *Store) path(d Digest) string { return filepath.Join(s.dir, d.hex()) }

// Has reports whether the store has a blob.
func (s *Store) Has(d Digest) bool {
	_, err := os.Lstat(s.path(d))
	return err == nil
}

// Get opens a blob, which the caller must close, or returns [trivet.ErrNotFound].
func (s *Store) Get(d Digest) (*os.File, int64, error) {
	f, err := os.OpenFile(s.path(d), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, s.fault("read", d, err)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(s.fault("read", d, err), f.Close())
	}
	return f, fi.Size(), nil
}

// Table returns the chunk table of a blob.
func (s *Store) Table(d Digest) ([]byte, error) { return s.table(d) }

// table reads a blob's chunk table.
func (s *Store) table(d Digest) ([]byte, error) {
	table, err := os.ReadFile(s.path(d) + tableSuffix)
	return table, s.fault("read chunk table of", d, err)
}

// Stat returns the reference of a blob, or [trivet.ErrNotFound].
func (s *Store) Stat(d Digest) (trivet.BlobRef, error) {
	fi, err := os.Lstat(s.path(d))
	if err != nil {
		return trivet.BlobRef{}, s.fault("read", d, err)
	}
	table, err := s.table(d)
	return trivet.BlobRef{Digest: d.String(), Bytes: fi.Size(), Chunks: DigestOf(table).String()}, err
}

// List returns all blobs, in order of digest.
func (s *Store) List() ([]trivet.BlobRef, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	var refs []trivet.BlobRef
	for _, e := range entries {
		d, err := ParseDigest(algorithm + e.Name())
		if err != nil {
			continue
		}
		ref, err := s.Stat(d)
		if errors.Is(err, trivet.ErrNotFound) { // deleted meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// Delete removes a blob, or returns [trivet.ErrNotFound]. Open files remain readable.
func (s *Store) Delete(d Digest) error {
	s.names.Lock()
	defer s.names.Unlock()
	return s.removeFiles(d)
}

// removeFiles removes the files of a blob. s.names is held.
func (s *Store) removeFiles(d Digest) error {
	s.mu.Lock()
	delete(s.damaged, d)
	s.mu.Unlock()
	if err := os.Remove(s.path(d) + pullSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.fault("delete partial", d, err)
	}
	if err := os.Remove(s.path(d)); err != nil {
		return s.fault("delete", d, err)
	}
	if err := os.Remove(s.path(d) + tableSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.fault("delete chunk table of", d, err)
	}
	return s.fault("delete", d, s.syncDir())
}

// syncDir syncs renames and removals to stable storage.
func (s *Store) syncDir() error {
	f, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (s *Store) fault(op string, d Digest, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		err = trivet.ErrNotFound
	default:
		if isFaulty(err) || errors.Is(err, unix.EROFS) {
			s.noteFault(err)
		}
		err = fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	return &trivet.Error{Op: op + " blob", Name: d.String(), Err: err}
}
