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

// upload is a blob that comes in pieces. Its file is all of it that lasts.
type upload struct {
	mu    sync.Mutex // held while somebody uses it
	name  string
	part  *part // guarded by mu; nil: not opened since the start
	gone  bool  // guarded by mu
	timer *time.Timer
}

// Begin opens an upload and gives its name. What it got goes on after a restart; it expires when nothing comes for the
// store's Lifetime. [trivet.ErrUnavailable] when too many are open.
func (s *Store) Begin() (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweepDone()
	if s.closed || len(s.uploads) >= s.opts.MaxUploads {
		return "", &trivet.Error{Op: "begin upload", Err: trivet.ErrUnavailable,
			Hint: fmt.Sprintf("%d uploads are open; finish or abort one", len(s.uploads))}
	}
	id = newID()
	p, err := s.newPart(id + uploadSuffix)
	if err != nil {
		return "", fmt.Errorf("begin upload: %w", err)
	}
	u := s.found(id)
	u.part = p
	s.uploads[id] = u
	return id, nil
}

// found is an upload whose file is there.
func (s *Store) found(id string) *upload {
	u := &upload{name: filepath.Join(s.dir, id+uploadSuffix)}
	u.timer = time.AfterFunc(s.opts.UploadTimeout, func() {
		if err := s.Abort(id); errors.Is(err, trivet.ErrConflict) {
			u.timer.Reset(s.opts.UploadTimeout)
		}
	})
	return u
}

// Offset tells how many bytes of an upload are stored: where it goes on. While a piece is taken it is [trivet.ErrConflict].
func (s *Store) Offset(ctx context.Context, id string) (offset int64, err error) {
	err = s.use(ctx, "read", id, func(u *upload) error {
		offset = u.part.size
		return nil
	})
	return offset, err
}

// Append adds what r gives, which begins at offset, to an upload and tells where it ends now. All up to there is on stable
// storage, also when an error is returned because r broke off. An offset that is not the upload's end, or another Append
// under way, is [trivet.ErrConflict]. When the disk fails or is full, [trivet.ErrUnavailable], the upload is gone.
func (s *Store) Append(ctx context.Context, id string, offset int64, r io.Reader) (end int64, err error) {
	err = s.use(ctx, "append to", id, func(u *upload) error {
		end = u.part.size
		if offset != end {
			return fmt.Errorf("%w: it has %d bytes, the piece begins at %d", trivet.ErrConflict, end, offset)
		}
		err := u.part.take(ctx, r)
		if u.part.broken == nil {
			u.part.broken = s.full(u.part.file.Sync())
		}
		if u.part.broken != nil {
			s.forget(id, u)
			return errors.Join(u.part.broken, u.part.drop())
		}
		end = u.part.size
		return err
	})
	return end, err
}

// Finish makes an upload a blob; the upload is gone then. What is not empty in want must be true of it, else it is
// [trivet.ErrInvalid]; the upload stays then only if it is too short, and can go on. Who has lost the answer may ask again,
// for the store's Lifetime.
func (s *Store) Finish(ctx context.Context, id string, want trivet.BlobRef) (ref trivet.BlobRef, err error) {
	if ref, err := s.Finished(id); err == nil {
		return ref, compare(want, ref)
	}
	err = s.use(ctx, "finish", id, func(u *upload) (err error) {
		if err = s.wanted(want); err != nil {
			return err
		}
		done, _ := u.part.end()
		if err = compare(want, done); err == nil {
			err = s.full(s.noteDone(id, done.Digest))
		}
		if err == nil {
			ref, err = u.part.commit(want)
		} else {
			ref = done
		}
		switch {
		case err == nil:
			s.forget(id, u)
		case errors.Is(err, trivet.ErrInvalid) && ref.Bytes >= want.Bytes:
			s.forget(id, u)
			err = errors.Join(err, u.part.drop())
		}
		return err
	})
	return ref, err
}

// Abort removes an upload.
func (s *Store) Abort(id string) error {
	return s.use(context.Background(), "abort", id, func(u *upload) error {
		s.forget(id, u)
		return s.full(u.part.drop())
	})
}

// forget needs u.mu.
func (s *Store) forget(id string, u *upload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.gone = true
	u.timer.Stop()
	delete(s.uploads, id)
}

// use does something with an upload, which nobody else uses meanwhile.
func (s *Store) use(ctx context.Context, op, id string, f func(*upload) error) error {
	s.mu.Lock()
	u := s.uploads[id]
	closed := s.closed
	s.mu.Unlock()
	if u == nil {
		return &trivet.Error{Op: op + " upload", Name: id, Err: trivet.ErrNotFound, Hint: "it was finished or has expired"}
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
		return fmt.Errorf("%s upload %s: %w", op, id, err) // the hint is inside
	}
	return nil
}

// open reads again what an upload got before a restart, to have its digests.
func (u *upload) open(ctx context.Context, s *Store) error {
	switch {
	case u.gone:
		return trivet.ErrNotFound
	case u.part != nil:
		return nil
	}
	f, err := os.OpenFile(u.name, os.O_RDWR, 0)
	if err != nil {
		return s.full(err)
	}
	p := &part{store: s, file: f, sums: newSums()}
	if err := p.reread(ctx); err != nil {
		return errors.Join(err, f.Close())
	}
	u.part = p
	return nil
}
