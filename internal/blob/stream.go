package blob

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"

	"github.com/trivet-project/trivet"
)

// stream is the reader that Fetch returns. Its goroutine fetches and verifies chunks while earlier ones are read.
type stream struct {
	ready chan []byte // verified chunks; closed at the end
	free  chan []byte // buffers for reuse
	cur   []byte      // being read
	rest  []byte      // of cur
	stop  context.CancelCauseFunc
	err   error // of the goroutine; valid once ready is closed
	once  sync.Once
}

// ahead is how many chunks are in memory.
const ahead = 3

func newStream(ctx context.Context, from *source) *stream {
	ctx, stop := context.WithCancelCause(ctx)
	s := &stream{ready: make(chan []byte, ahead), free: make(chan []byte, ahead), stop: stop}
	for range ahead {
		s.free <- nil
	}
	go func() {
		defer close(s.ready)
		if err := s.fill(ctx, from); err != nil {
			s.err = fmt.Errorf("fetch blob %s: %w", from.digest, err)
		}
	}()
	return s
}

func (s *stream) fill(ctx context.Context, from *source) error {
	table, err := from.table(ctx)
	if err != nil {
		return err
	}
	whole := sha256.New()
	var hashing sync.WaitGroup // of a chunk, while the next one is fetched
	defer hashing.Wait()
	defer from.close()
	for i := range chunksOf(from.size) {
		var b []byte
		select {
		case b = <-s.free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		n := min(ChunkBytes, from.size-i*ChunkBytes)
		if b == nil {
			b = make([]byte, n)
		}
		if err := from.chunk(ctx, i, b[:n], table); err != nil {
			return err
		}
		hashing.Wait()
		hashing.Go(func() {
			whole.Write(b[:n])
			s.ready <- b[:n] // never blocks
		})
	}
	hashing.Wait()
	if got := Digest(whole.Sum(nil)); got != from.digest {
		return fmt.Errorf("%w: the digest of the data is %s", trivet.ErrInvalid, got)
	}
	return nil
}

// Read reads from verified chunks.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.cur != nil {
			s.free <- s.cur[:cap(s.cur)]
			s.cur = nil
		}
		b, ok := <-s.ready
		if !ok && s.err != nil {
			return 0, s.err
		} else if !ok {
			return 0, io.EOF
		}
		s.cur, s.rest = b, b
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close stops the goroutine and waits for it.
func (s *stream) Close() error {
	s.once.Do(func() {
		s.stop(io.ErrClosedPipe)
		for range s.ready {
			continue // discard
		}
	})
	return nil
}
