package blob

import (
	"crypto/sha256"
	"hash"
	"sync"

	"github.com/trivet-project/trivet"
)

// ChunkBytes is the length of a chunk, the unit of verification.
const ChunkBytes = 4 << 20

// sums computes the digests of content that is added in pieces of any length.
type sums struct {
	whole, chunk hash.Hash
	size         int64
	table        []byte // of the complete chunks
}

func newSums() *sums { return &sums{whole: sha256.New(), chunk: sha256.New()} }

// add hashes the next piece. It does not retain b.
func (s *sums) add(b []byte) {
	var both sync.WaitGroup
	both.Go(func() { s.whole.Write(b) })
	for rest := b; len(rest) > 0; {
		n := min(int64(len(rest)), ChunkBytes-s.size%ChunkBytes)
		s.chunk.Write(rest[:n])
		s.size += n
		if s.size%ChunkBytes == 0 {
			s.table = s.chunk.Sum(s.table)
			s.chunk.Reset()
		}
		rest = rest[n:]
	}
	both.Wait()
}

// end returns the reference and the chunk table of the content.
func (s *sums) end() (trivet.BlobRef, []byte) {
	table := s.table[:len(s.table):len(s.table)]
	if s.size%ChunkBytes != 0 {
		table = s.chunk.Sum(table)
	}
	whole := Digest(s.whole.Sum(nil))
	return trivet.BlobRef{Digest: whole.String(), Bytes: s.size, Chunks: DigestOf(table).String()}, table
}

// chunksOf returns the number of chunks of content.
func chunksOf(size int64) int64 { return (size + ChunkBytes - 1) / ChunkBytes }
