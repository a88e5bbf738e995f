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

// doneSuffix is the suffix of the file that records the digest of a finished upload. It is written before the upload is
// committed as a blob, and is valid once the upload's file is gone.
const doneSuffix = ".done"

func (s *Store) donePath(id string) string { return filepath.Join(s.dir, id+doneSuffix) }

func (s *Store) recordDone(id, digest string) error {
	f, err := os.OpenFile(s.donePath(id), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(digest)
	return errors.Join(err, f.Sync(), f.Close())
}

// Finished returns the blob of a finished upload. It returns [trivet.ErrNotFound] if the upload has not finished, or
// finished more than the store's UploadTimeout ago.
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

// sweepDone removes the records of uploads that finished long ago. What cannot be removed now is removed later.
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
