package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/trivet-project/trivet"
)

// chunkTable is the digests of the chunks; nil if not known.
type chunkTable []byte

// parseTable checks a table against the length of its blob and the table's digest in the reference.
func parseTable(b []byte, size int64, want Digest) (chunkTable, error) {
	if int64(len(b)) != tableBytes(size) {
		return nil, fmt.Errorf("%w: chunk table of %d bytes for a blob of %d", trivet.ErrInvalid, len(b), size)
	}
	if got := DigestOf(b); got != want {
		return nil, fmt.Errorf("%w: the chunk table's digest is %s, not %s", trivet.ErrInvalid, got, want)
	}
	return b, nil
}

func tableBytes(size int64) int64 { return chunksOf(size) * sha256.Size }

// check verifies a chunk.
func (t chunkTable) check(i int64, chunk []byte) error {
	if t == nil {
		return nil
	}
	sum := sha256.Sum256(chunk)
	if !bytes.Equal(t[i*sha256.Size:(i+1)*sha256.Size], sum[:]) {
		return fmt.Errorf("%w: the %d bytes at %d are damaged", trivet.ErrInvalid, len(chunk), i*ChunkBytes)
	}
	return nil
}

// table fetches the chunk table, if the reference has one.
func (s *source) table(ctx context.Context) (table chunkTable, err error) {
	if s.chunks == nil {
		return nil, nil
	}
	b := make([]byte, tableBytes(s.size))
	err = s.try(ctx, func(base string) error {
		c, err := s.dial(ctx, base+"/blob/"+s.digest.String()+tableSuffix, 0, int64(len(b)))
		if err != nil {
			return err
		}
		defer c.close()
		if err := c.readFull(b); err != nil {
			return err
		}
		table, err = parseTable(b, s.size, *s.chunks)
		return err
	})
	return table, err
}
