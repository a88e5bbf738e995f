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
	"time"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Options of a Store; the zero value is usable.
type Options struct {
	MaxBytes      int64         // of one blob; 0: 1 TiB
	Reserve       int64         // bytes of the file system that blobs leave free for others
	MaxUploads    int           // open at a time; 0: 64
	UploadTimeout time.Duration // of an upload to which nothing comes; 0: 24 hours
}

// Store is a folder of blobs. One process may use it at a time.
type Store struct {
	dir     string
	opts    Options
	lock    *os.File   // keeps other processes off
	names   sync.Mutex // held while the files of a blob get or lose their names
	mu      sync.Mutex
	uploads map[string]*upload // guarded by mu
	closed  bool               // guarded by mu
}

// The folder holds <hex> and <hex>.chunks of each blob, and while they are written <id>.put (of Put, gone at the next
// start), <id>.upload (which goes on after one), <hex>.pull (as well), and <id>.done of an upload that has become a blob. A blob is there when <hex> is; its table is put
// beside it before.
const (
	tableSuffix  = ".chunks"
	putSuffix    = ".put"
	uploadSuffix = ".upload"
)

// Open opens or makes the folder, and removes from it what a crash has left.
func Open(dir string, opts Options) (*Store, error) {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, 1<<40)
	opts.MaxUploads = cmp.Or(opts.MaxUploads, 64)
	opts.UploadTimeout = cmp.Or(opts.UploadTimeout, 24*time.Hour)
	s := &Store{dir: dir, opts: opts, uploads: map[string]*upload{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := s.own(); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("open blobs: %w", errors.Join(err, s.lock.Close()))
	}
	return s, nil
}

// own refuses a second process, which would sweep away what comes in here.
func (s *Store) own() (err error) {
	if s.lock, err = os.Open(s.dir); err != nil {
		return err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("%w: %s is in use by another process", trivet.ErrUnavailable, s.dir), s.lock.Close())
	}
	return nil
}

// sweep removes what nothing can use any more, and finds the uploads that can go on.
func (s *Store) sweep() error {
	s.sweepDone()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, isTable := strings.CutSuffix(e.Name(), tableSuffix)
		if id, ok := strings.CutSuffix(e.Name(), uploadSuffix); ok && isID(id) {
			s.uploads[id] = s.found(id)
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

// stalePull says whether what was pulled of a blob is of no use: the blob is here, or nothing has come for long.
func (s *Store) stalePull(base string) bool {
	d, err := ParseDigest(algorithm + base)
	if err != nil || s.Has(d) {
		return true
	}
	fi, err := os.Lstat(s.path(d) + pullSuffix)
	return err == nil && time.Since(fi.ModTime()) > s.opts.UploadTimeout
}

// Close ends the expiry of uploads. What is open stays so, and uploads go on at the next start.
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

// Has says whether a blob is here.
func (s *Store) Has(d Digest) bool {
	_, err := os.Lstat(s.path(d))
	return err == nil
}

// Get opens a blob, which the caller closes. [trivet.ErrNotFound] if it is not here.
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

// table gives a blob's chunk table as it is on the disk.
func (s *Store) table(d Digest) ([]byte, error) {
	table, err := os.ReadFile(s.path(d) + tableSuffix)
	return table, s.fault("read chunk table of", d, err)
}

// Stat gives the reference of a blob that is here.
func (s *Store) Stat(d Digest) (trivet.BlobRef, error) {
	fi, err := os.Lstat(s.path(d))
	if err != nil {
		return trivet.BlobRef{}, s.fault("read", d, err)
	}
	table, err := s.table(d)
	return trivet.BlobRef{Digest: d.String(), Bytes: fi.Size(), Chunks: DigestOf(table).String()}, err
}

// List gives all that is here, in the order of their digests.
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

// Delete removes a blob. Who reads it goes on reading. [trivet.ErrNotFound] if it is not here.
func (s *Store) Delete(d Digest) error {
	s.names.Lock()
	defer s.names.Unlock()
	if err := os.Remove(s.path(d) + pullSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.fault("delete what was pulled of", d, err)
	}
	if err := os.Remove(s.path(d)); err != nil {
		return s.fault("delete", d, err)
	}
	if err := os.Remove(s.path(d) + tableSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.fault("delete chunk table of", d, err)
	}
	return s.fault("delete", d, s.syncDir())
}

// syncDir makes what was renamed or removed last.
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
		err = fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	return &trivet.Error{Op: op + " blob", Name: d.String(), Err: err}
}
