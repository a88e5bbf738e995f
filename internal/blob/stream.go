package blob

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"

	"github.com/trivet-project/trivet"
)

// stream is the reader that Fetch gives. Its goroutine fetches and verifies chunks while the reader uses earlier ones.
type stream struct {
	ready chan []byte // verified chunks; closed at the end
	free  chan []byte // their memory, back
	cur   []byte      // being read
	rest  []byte      // of cur
	stop  context.CancelCauseFunc
	err   error // of the goroutine; to be read after ready is closed
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
	var hashing sync.WaitGroup // the whole, while the next chunk comes
	defer hashing.Wait()
	defer from.hangUp()
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
			s.ready <- b[:n] // has room for all there are
		})
	}
	hashing.Wait()
	if got := Digest(whole.Sum(nil)); got != from.digest {
		return fmt.Errorf("%w: the digest of what came is %s", trivet.ErrInvalid, got)
	}
	return nil
}

// Read gives bytes of verified chunks.
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

// Close ends the goroutine and waits for it.
func (s *stream) Close() error {
	s.once.Do(func() {
		s.stop(io.ErrClosedPipe)
		for range s.ready {
			continue // they are dropped
		}
	})
	return nil
}
