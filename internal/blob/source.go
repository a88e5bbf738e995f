package blob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// source is the heads that serve a blob, and the connection to one of them.
type source struct {
	client       *http.Client
	stall, pause time.Duration
	urls         []string
	at           int // index of the next URL
	digest       Digest
	chunks       *Digest // of the chunk table; nil: not known
	size         int64
	log          *slog.Logger
	timeout      time.Duration // for how long all heads may fail; 0: until the context ends

	open *conn // positioned at the chunk next
	next int64
}

// chunk reads and verifies one chunk.
func (s *source) chunk(ctx context.Context, i int64, b []byte, table chunkTable) error {
	return s.try(ctx, func(base string) error {
		if s.open == nil || s.next != i {
			s.close()
			c, err := s.dial(ctx, base+"/blob/"+s.digest.String(), i*ChunkBytes, s.size)
			if err != nil {
				return err
			}
			s.open = c
		}
		s.next = i + 1
		err := s.open.readFull(b)
		if err == nil {
			err = table.check(i, b)
		}
		if err != nil {
			s.close()
		}
		return err
	})
}

func (s *source) close() {
	if s.open != nil {
		s.open.close()
		s.open = nil
	}
}

// maxDoublings is how often the pause between rounds doubles.
const maxDoublings = 5

// try calls do with one head after the other until it succeeds, ctx or the timeout ends, or all heads have returned a
// permanent error twice in a row.
func (s *source) try(ctx context.Context, do func(base string) error) error {
	permanent, began := 0, time.Now()
	for n := 1; ; n++ {
		err := do(s.urls[s.at])
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case errors.Is(err, trivet.ErrNotFound), errors.Is(err, trivet.ErrInvalid), errors.Is(err, trivet.ErrForbidden):
			permanent++
		default:
			permanent = 0
		}
		if permanent >= 2*len(s.urls) || n%len(s.urls) == 0 && s.timeout > 0 && time.Since(began) > s.timeout {
			return err
		}
		s.log.Warn("cannot fetch a blob; trying the next head", "blob", s.digest, "url", s.urls[s.at], "error", err)
		s.at = (s.at + 1) % len(s.urls)
		if n%len(s.urls) != 0 {
			continue
		}
		if waitErr := s.wait(ctx, n/len(s.urls)); waitErr != nil {
			return fmt.Errorf("%w (last: %w)", waitErr, err)
		}
	}
}

// wait pauses after a round, with jitter, so that heads that return are not overloaded.
func (s *source) wait(ctx context.Context, round int) error {
	return wait.Sleep(ctx, wait.Jitter(s.pause<<min(round-1, maxDoublings)))
}
