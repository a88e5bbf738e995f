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

// Put stores the content of r on stable storage, in one pass, and returns its reference. After an error nothing is
// left. The content must match the non-empty fields of want. Errors are [trivet.ErrInvalid] (other content than
// wanted), ErrTooLarge, ErrUnavailable (such as a full disk) or ctx's, which is checked between reads of r.
func (s *Store) Put(ctx context.Context, r io.Reader, want trivet.BlobRef) (trivet.BlobRef, error) {
	ref, err := s.put(ctx, r, want)
	if err != nil {
		return trivet.BlobRef{}, fmt.Errorf("store blob: %w", err)
	}
	return ref, nil
}

func (s *Store) put(ctx context.Context, r io.Reader, want trivet.BlobRef) (ref trivet.BlobRef, err error) {
	if err := s.checkWant(want); err != nil {
		return ref, err
	}
	if err := s.checkSpace(want.Bytes); err != nil {
		return ref, err
	}
	p, err := s.newPart(newID() + putSuffix)
	if err != nil {
		return ref, err
	}
	if want.Bytes > 0 {
		r = io.LimitReader(r, want.Bytes+1) // one more, to detect that it is too long
	}
	if err = p.readFrom(ctx, r); err == nil {
		ref, err = p.commit(want)
	}
	if err != nil {
		return ref, errors.Join(err, p.drop())
	}
	return ref, nil
}

// checkWant returns an error if want is invalid.
func (s *Store) checkWant(want trivet.BlobRef) error {
	for _, d := range []string{want.Digest, want.Chunks} {
		if _, err := ParseDigest(d); d != "" && err != nil {
			return err
		}
	}
	switch {
	case want.Bytes < 0:
		return fmt.Errorf("%w: length %d", trivet.ErrInvalid, want.Bytes)
	case want.Bytes > s.opts.MaxBytes:
		return fmt.Errorf("%w: %d bytes; the maximum is %d", trivet.ErrTooLarge, want.Bytes, s.opts.MaxBytes)
	}
	return nil
}

// newID returns a random upload ID that cannot be guessed.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func isID(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16 && hex.EncodeToString(b) == s
}
