package blob

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// doneSuffix ends the file that remembers which blob an upload has become, by its digest. It is written before the upload
// becomes the blob, and counts from when the upload is gone.
const doneSuffix = ".done"

func (s *Store) donePath(id string) string { return filepath.Join(s.dir, id+doneSuffix) }

func (s *Store) noteDone(id, digest string) error {
	f, err := os.OpenFile(s.donePath(id), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(digest)
	return errors.Join(err, f.Sync(), f.Close())
}

// Finished gives the blob that an upload has become. It is [trivet.ErrNotFound] for one that has not, or for which the store's
// Lifetime is over.
func (s *Store) Finished(id string) (ref trivet.BlobRef, err error) {
	missing := &trivet.Error{Op: "finish upload", Name: id, Err: trivet.ErrNotFound}
	s.mu.Lock()
	_, open := s.uploads[id]
	s.mu.Unlock()
	if open || !isID(id) {
		return ref, missing
	}
	text, err := os.ReadFile(s.donePath(id))
	if err != nil {
		return ref, missing
	}
	d, err := ParseDigest(string(text))
	if err != nil {
		return ref, missing
	}
	return s.Stat(d)
}

// sweepDone forgets what uploads have become for which that is long ago. What cannot be removed now is so later.
func (s *Store) sweepDone() {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), doneSuffix) {
			continue
		}
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) > s.opts.UploadTimeout {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return
			}
		}
	}
}
