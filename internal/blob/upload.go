package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// upload is a blob that is uploaded in pieces. Only its file is persistent.
type upload struct {
	mu    sync.Mutex // held while in use
	name  string
	part  *part // guarded by mu; nil: not opened since the start
	gone  bool  // guarded by mu
	timer *time.Timer
}

// Begin starts an upload and returns its ID. It can be resumed after a restart, and expires when it is idle for the
// store's UploadTimeout. It returns [trivet.ErrUnavailable] if too many are open.
func (s *Store) Begin() (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepDone()
	if s.closed || len(s.uploads) >= s.opts.MaxUploads {
		return "", &trivet.Error{Op: "begin upload", Err: trivet.ErrUnavailable,
			Hint: fmt.Sprintf("%d uploads are open; finish or cancel one", len(s.uploads))}
	}
	id = newID()
	p, err := s.newPart(id + uploadSuffix)
	if err == nil {
		if err = s.tryDisk(p); err != nil {
			err = errors.Join(err, p.drop())
		}
	}
	if err != nil {
		return "", fmt.Errorf("begin upload: %w", err)
	}
	u := s.register(id)
	u.part = p
	s.uploads[id] = u
	return id, nil
}

// register returns an upload whose file exists, and starts its timer.
func (s *Store) register(id string) *upload {
	u := &upload{name: filepath.Join(s.dir, id+uploadSuffix)}
	u.timer = time.AfterFunc(s.opts.UploadTimeout, func() {
		if err := s.Abort(id); errors.Is(err, trivet.ErrConflict) {
			u.timer.Reset(s.opts.UploadTimeout)
		}
	})
	return u
}

// Offset returns how many bytes of an upload are stored, where it resumes. During an Append it returns
// [trivet.ErrConflict].
func (s *Store) Offset(ctx context.Context, id string) (offset int64, err error) {
	err = s.use(ctx, "read", id, func(u *upload) error {
		offset = u.part.size
		return nil
	})
	return offset, err
}

// Append adds r, which begins at offset, to an upload and returns the new end. All bytes before it are on stable
// storage, even after an error of r. It returns [trivet.ErrConflict] if offset is not the upload's end or during
// another Append, and [trivet.ErrUnavailable] if the disk fails or is full: then the upload is removed.
func (s *Store) Append(ctx context.Context, id string, offset int64, r io.Reader) (end int64, err error) {
	err = s.use(ctx, "append to", id, func(u *upload) error {
		end = u.part.size
		if offset != end {
			return fmt.Errorf("%w: it has %d bytes; the piece begins at %d", trivet.ErrConflict, end, offset)
		}
		err := u.part.readFrom(ctx, r)
		if u.part.diskErr == nil {
			u.part.diskErr = s.diskError(u.part.file.Sync())
		}
		if u.part.diskErr != nil {
			s.remove(id, u)
			return errors.Join(u.part.diskErr, u.part.drop())
		}
		end = u.part.size
		return err
	})
	return end, err
}

// Finish turns an upload into a blob. It returns [trivet.ErrInvalid] if the content does not match the non-empty
// fields of want; the upload then stays only if it is too short and can be resumed. A client that lost the response may
// call it again within the store's UploadTimeout.
func (s *Store) Finish(ctx context.Context, id string, want trivet.BlobRef) (ref trivet.BlobRef, err error) {
	if ref, err := s.Finished(id); err == nil {
		return ref, compare(want, ref)
	}
	err = s.use(ctx, "finish", id, func(u *upload) (err error) {
		if err = s.checkWant(want); err != nil {
			return err
		}
		done, _ := u.part.end()
		if err = compare(want, done); err == nil {
			err = s.diskError(s.recordDone(id, done.Digest))
		}
		if err == nil {
			ref, err = u.part.commit(want)
		} else {
			ref = done
		}
		switch {
		case err == nil:
			s.remove(id, u)
		case errors.Is(err, trivet.ErrInvalid) && ref.Bytes >= want.Bytes:
			s.remove(id, u)
			err = errors.Join(err, u.part.drop())
		}
		return err
	})
	return ref, err
}

// Abort removes an upload.
func (s *Store) Abort(id string) error {
	return s.use(context.Background(), "abort", id, func(u *upload) error {
		s.remove(id, u)
		return s.diskError(u.part.drop())
	})
}

// remove removes an upload from the store. u.mu is held.
func (s *Store) remove(id string, u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.gone = true
	u.timer.Stop()
	delete(s.uploads, id)
}

// use calls f with exclusive use of an upload.
func (s *Store) use(ctx context.Context, op, id string, f func(*upload) error) error {
	s.mu.Lock()
	u := s.uploads[id]
	closed := s.closed
	s.mu.Unlock()
	if u == nil {
		return &trivet.Error{Op: op + " upload", Name: id, Err: trivet.ErrNotFound,
			Hint: "it was finished or has expired"}
	}
	if closed || !u.mu.TryLock() {
		return &trivet.Error{Op: op + " upload", Name: id, Err: fmt.Errorf("%w: it is in use", trivet.ErrConflict)}
	}
	defer u.mu.Unlock()
	err := u.open(ctx, s)
	if err == nil {
		err = f(u)
	}
	if !u.gone {
		u.timer.Reset(s.opts.UploadTimeout)
	}
	if err != nil {
		return fmt.Errorf("%s upload %s: %w", op, id, err)
	}
	return nil
}

// open rereads an upload's file after a restart, to compute its digests.
func (u *upload) open(ctx context.Context, s *Store) error {
	switch {
	case u.gone:
		return trivet.ErrNotFound
	case u.part != nil:
		return nil
	}
	f, err := os.OpenFile(u.name, os.O_RDWR, 0)
	if err != nil {
		return s.diskError(err)
	}
	p := &part{store: s, file: f, sums: newSums()}
	if err := p.reread(ctx, nil); err != nil {
		return errors.Join(err, f.Close())
	}
	u.part = p
	return nil
}
