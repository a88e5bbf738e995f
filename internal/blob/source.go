package blob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
)

// source is the heads that a blob comes from, and the connection to one of them.
type source struct {
	client       *http.Client
	stall, pause time.Duration
	urls         []string
	at           int // of urls, that is asked next
	digest       Digest
	chunks       *Digest // of the chunk table; nil: not known
	size         int64
	log          *slog.Logger
	patience     time.Duration // for how long all heads may fail; 0: until the context ends

	open *conn // continues at the chunk next
	next int64
}

// chunk reads one chunk, whole and good.
func (s *source) chunk(ctx context.Context, i int64, b []byte, table chunkTable) error {
	return s.try(ctx, func(base string) error {
		if s.open == nil || s.next != i {
			s.hangUp()
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
			s.hangUp()
		}
		return err
	})
}

func (s *source) hangUp() {
	if s.open != nil {
		s.open.close()
		s.open = nil
	}
}

// maxPauses is how often the pause between rounds doubles.
const maxPauses = 5

// try does something with one head after the other until it succeeds, ctx ends or patience does, or until all heads
// have said twice running what will not change.
func (s *source) try(ctx context.Context, do func(base string) error) error {
	lasting, began := 0, time.Now()
	for n := 1; ; n++ {
		err := do(s.urls[s.at])
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case errors.Is(err, trivet.ErrNotFound), errors.Is(err, trivet.ErrInvalid), errors.Is(err, trivet.ErrForbidden):
			lasting++
		default:
			lasting = 0
		}
		if lasting >= 2*len(s.urls) || n%len(s.urls) == 0 && s.patience > 0 && time.Since(began) > s.patience {
			return err
		}
		s.log.Warn("blob: leaving a head for the next", "blob", s.digest, "head", s.urls[s.at], "error", err)
		s.at = (s.at + 1) % len(s.urls)
		if n%len(s.urls) != 0 {
			continue
		}
		if waitErr := s.wait(ctx, n/len(s.urls)); waitErr != nil {
			return fmt.Errorf("%w (last: %w)", waitErr, err)
		}
	}
}

// wait pauses after a round, so long that heads which come back are not asked by all at once.
func (s *source) wait(ctx context.Context, round int) error {
	pause := s.pause << min(round-1, maxPauses)
	t := time.NewTimer(pause/2 + rand.N(pause/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
