package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/trivet-project/trivet"
)

// Verify rereads a blob and its chunk table and compares them with its name. It returns [trivet.ErrInvalid] with the
// damaged range.
func (s *Store) Verify(ctx context.Context, d Digest) error {
	f, _, err := s.Get(d)
	if err != nil {
		return err
	}
	defer f.Close()
	table, err := s.table(d)
	if err != nil {
		return err
	}
	p := &part{store: s, file: f, sums: newSums()}
	if err := p.reread(ctx); err != nil {
		return fmt.Errorf("verify blob %s: %w", d, err)
	}
	ref, actual := p.end()
	if ref.Digest == d.String() && bytes.Equal(table, actual) {
		return nil
	}
	return &trivet.Error{Op: "verify blob", Name: d.String(), Hint: "import it again to replace it",
		Err: fmt.Errorf("%w: %s", trivet.ErrInvalid, damage(ref.Digest == d.String(), table, actual))}
}

func damage(contentOK bool, table, actual []byte) string {
	if contentOK {
		return "its chunk table is damaged"
	}
	for i := 0; i < min(len(table), len(actual)); i += sha256.Size {
		if !bytes.Equal(table[i:min(i+sha256.Size, len(table))], actual[i:i+sha256.Size]) {
			return fmt.Sprintf("damaged in the %d bytes at %d", ChunkBytes, int64(i/sha256.Size)*ChunkBytes)
		}
	}
	return "its length is wrong"
}

// reread hashes the file.
func (p *part) reread(ctx context.Context) error {
	b := make([]byte, pieceBytes)
	for ctx.Err() == nil {
		n, err := p.file.ReadAt(b, p.size)
		p.add(b[:n])
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		}
	}
	return context.Cause(ctx)
}
