package blob

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// A file's time of modification is when its blob was last used: written, served, or announced by Use. So it survives a
// restart, and a blob is either used or removed, never both.

// Held is a blob on the disk, or what an interrupted pull left of one.
type Held struct {
	Digest Digest
	Bytes  int64
	Used   time.Time // last
}

// Held returns what is on the disk, in order of digest.
func (s *Store) Held() (all []Held, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	for _, e := range entries {
		d, err := ParseDigest(algorithm + strings.TrimSuffix(e.Name(), pullSuffix))
		if err != nil {
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed or complete meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		all = append(all, Held{d, fi.Size(), fi.ModTime()})
	}
	return all, nil
}

// Use notes that a blob is about to be referred to, so that DeleteUnused leaves it for a while. It returns its
// reference, or [trivet.ErrNotFound].
func (s *Store) Use(d Digest) (trivet.BlobRef, error) {
	s.names.Lock()
	defer s.names.Unlock()
	now := time.Now()
	if err := os.Chtimes(s.path(d), now, now); err != nil {
		return trivet.BlobRef{}, s.fault("use", d, err)
	}
	return s.Stat(d)
}

// useStep is how old the time of use may be while a blob is served.
const useStep = time.Hour

// noteUse notes that a blob's open file is served.
func (s *Store) noteUse(d Digest, f *os.File) {
	fi, err := f.Stat()
	if now := time.Now(); err == nil && now.Sub(fi.ModTime()) > useStep {
		_ = os.Chtimes(s.path(d), now, now) // it may have been deleted, and is served from the open file
	}
}

// DeleteUnused removes a blob that was not used after a time. It returns [trivet.ErrConflict] for one that was.
func (s *Store) DeleteUnused(d Digest, since time.Time) error {
	s.names.Lock()
	defer s.names.Unlock()
	found := false
	for _, suffix := range []string{"", pullSuffix} {
		fi, err := os.Lstat(filepath.Join(s.dir, d.hex()+suffix))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return s.fault("delete", d, err)
		case fi.ModTime().After(since):
			return &trivet.Error{Op: "delete blob", Name: d.String(),
				Err: fmt.Errorf("%w: it was used at %s", trivet.ErrConflict, fi.ModTime().UTC().Format(time.RFC3339))}
		default:
			found = true
		}
	}
	if !found {
		return s.fault("delete", d, fs.ErrNotExist)
	}
	if err := s.removeFiles(d); !errors.Is(err, trivet.ErrNotFound) { // of an interrupted pull there is no more
		return err
	}
	return nil
}
