package blob

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
)

// Put stores what r gives, in one pass, and tells its reference. It is on stable storage then; after an error nothing of it
// is left. Of want, what is not empty must come true: its length, its digests. Errors are [trivet.ErrInvalid] (something
// else came than announced), ErrTooLarge, ErrUnavailable (the disk; full, for one) or the end of ctx, which is seen
// between reads of r.
func (s *Store) Put(ctx context.Context, r io.Reader, want trivet.BlobRef) (trivet.BlobRef, error) {
	ref, err := s.put(ctx, r, want)
	if err != nil {
		return trivet.BlobRef{}, fmt.Errorf("store blob: %w", err)
	}
	return ref, nil
}

func (s *Store) put(ctx context.Context, r io.Reader, want trivet.BlobRef) (ref trivet.BlobRef, err error) {
	if err := s.wanted(want); err != nil {
		return ref, err
	}
	p, err := s.newPart(newID() + putSuffix)
	if err != nil {
		return ref, err
	}
	if want.Bytes > 0 {
		r = io.LimitReader(r, want.Bytes+1) // one more shows that it is too long
	}
	if err = p.take(ctx, r); err == nil {
		ref, err = p.commit(want)
	}
	if err != nil {
		return ref, errors.Join(err, p.drop())
	}
	return ref, nil
}

// wanted refuses early what cannot come true.
func (s *Store) wanted(want trivet.BlobRef) error {
	for _, d := range []string{want.Digest, want.Chunks} {
		if _, err := ParseDigest(d); d != "" && err != nil {
			return err
		}
	}
	switch {
	case want.Bytes < 0:
		return fmt.Errorf("%w: a length of %d", trivet.ErrInvalid, want.Bytes)
	case want.Bytes > s.opts.MaxBytes:
		return fmt.Errorf("%w: %d bytes; at most %d", trivet.ErrTooLarge, want.Bytes, s.opts.MaxBytes)
	}
	return s.room(want.Bytes)
}

// newID is a name that nobody guesses.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isID(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16 && hex.EncodeToString(b) == s
}
