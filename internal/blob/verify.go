package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/trivet-project/trivet"
)

// Pace is called when n more bytes of a blob were read, and may delay the reader. Its error ends the reading.
type Pace func(ctx context.Context, n int) error

// Verify rereads a blob and compares it with its name. It returns [trivet.ErrInvalid] with the damaged range where its
// content is another one; the blob is then an interrupted pull, as one that is damaged when it is served. A chunk table
// that is damaged or lost is written again from the content. The time of the last use stays. pace may be nil.
func (s *Store) Verify(ctx context.Context, d Digest, pace Pace) error {
	f, _, err := s.Get(d)
	if err != nil {
		return err
	}
	defer f.Close()
	table, err := s.table(d)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) && !isFaulty(err) {
		return err
	}
	p := &part{store: s, file: f, sums: newSums()}
	err = p.reread(ctx, pace)
	if isFaulty(err) {
		err = s.unreadable("verify", d, err)
		s.setDamaged(d, f, err)
		return err
	}
	if err != nil {
		return fmt.Errorf("verify blob %s: %w", d, err)
	}
	ref, actual := p.end()
	switch {
	case ref.Digest != d.String():
		err := &trivet.Error{Op: "verify blob", Name: d.String(), Hint: "import it again to replace it",
			Err: fmt.Errorf("%w: %s", trivet.ErrInvalid, damage(table, actual))}
		s.setDamaged(d, f, err)
		return err
	case !bytes.Equal(table, actual):
		return s.mendTable(d, f, actual)
	}
	return nil
}

// mendTable writes the chunk table of a blob again.
func (s *Store) mendTable(d Digest, read *os.File, table []byte) error {
	s.names.Lock()
	defer s.names.Unlock()
	was, err := read.Stat()
	is, gone := os.Lstat(s.path(d))
	if err != nil || gone != nil || !os.SameFile(was, is) {
		return nil // deleted or replaced meanwhile
	}
	if err := errors.Join(s.replace(d.hex()+tableSuffix, table), s.syncDir()); err != nil {
		return s.fault("write chunk table of", d, err)
	}
	if s.opts.Repaired != nil {
		s.opts.Repaired(d)
	}
	return nil
}

func damage(table, actual []byte) string {
	for i := 0; i < min(len(table), len(actual)); i += sha256.Size {
		if !bytes.Equal(table[i:min(i+sha256.Size, len(table))], actual[i:i+sha256.Size]) {
			return fmt.Sprintf("damaged in the %d bytes at %d", ChunkBytes, int64(i/sha256.Size)*ChunkBytes)
		}
	}
	return "its length is wrong"
}

// reread hashes the file.
func (p *part) reread(ctx context.Context, pace Pace) error {
	b := make([]byte, pieceBytes)
	for ctx.Err() == nil {
		n, err := p.file.ReadAt(b, p.size)
		p.add(b[:n])
		if n > 0 && pace != nil {
			if err := pace(ctx, n); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		}
	}
	return context.Cause(ctx)
}
