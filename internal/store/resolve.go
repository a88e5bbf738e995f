package store

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/trivet-project/trivet"
)

// A try that was not answered may have been committed, may be committed later, or never. What makes it one or the other is
// the guard: a key of this head that every transaction compares with the revision it had in its snapshot. Once the guard has
// another revision, a try that is still on its way can no longer be committed; and one that was committed stands in the feed
// before the guard's change. So when the copy holds another guard than the try saw, the copy knows the outcome. Where the
// disk is slow, the try itself often comes before that.
//
// Other transactions of this head that were on their way fail their compare then, and are run again.

func (s *Store) guardKey() string { return prefix + guardPart + s.opts.Head }

// learn finds out what became of a try: its revision, errRerun where it was not committed and never will be, or ErrUnknown
// where ctx ends first, or there is no leader.
func (s *Store) learn(ctx context.Context, cause error, id string, guard int64) (int64, error) {
	seen := s.pending.outcome(id).seen
	for s.pending.outcome(id).rev == 0 && s.snapshot().revOf(s.guardKey()) == guard {
		switch err := s.changeGuard(ctx, seen); {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, trivet.ErrUnavailable):
			return 0, &trivet.Error{Op: "update", Err: fmt.Errorf("%w: %w", trivet.ErrUnknown, cause), Hint: hintQuorum}
		default:
			pause(ctx, retry)
		}
	}
	switch o := s.pending.outcome(id); {
	case o.rev != 0:
		if err := s.pending.wait(ctx, o.rev); err != nil {
			return 0, behind(err)
		}
		return o.rev, nil
	case o.missed:
		return 0, &trivet.Error{Op: "update", Err: fmt.Errorf("%w: the change feed left out revisions: %w", trivet.ErrUnknown, cause)}
	}
	return 0, errRerun
}

// changeGuard writes the guard and waits until the copy has it, or until there is no more need: the try was seen. Those who
// want it at the same time do it once.
func (s *Store) changeGuard(ctx context.Context, seen <-chan struct{}) error {
	done := s.guards.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
		defer cancel()
		return nil, s.try(ctx, func(ctx context.Context) error {
			resp, err := s.client.Put(ctx, s.guardKey(), "{}")
			if err != nil {
				return err
			}
			return s.pending.wait(ctx, resp.Header.Revision)
		})
	})
	select {
	case r := <-done:
		return r.Err
	case <-seen:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// giveWay waits a little before a run that follows several conflicts, so that one of many writers of a record gets through.
func (s *Store) giveWay(ctx context.Context, run int) {
	const patience, most = 2, 6
	if run >= patience {
		pause(ctx, time.Duration(mathrand.Int64N(int64(time.Millisecond)<<min(run-patience, most))))
	}
}
