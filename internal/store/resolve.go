package store

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// An attempt without a response may have been committed, may be committed later, or never. The guard decides: a
// key of this head that every attempt compares with the revision that the copy has when the attempt is sent. Once the
// guard has another revision, an attempt in flight can no longer be committed, and one that was committed is in the feed
// before the guard's change. So when the copy has a newer guard than the attempt was sent with, the copy knows the
// outcome. With a slow disk, the attempt itself often appears in the feed first.
//
// Other attempts of this head that are in flight then fail their compare and run again. What waits to be sent does not:
// it has read no guard yet.

func (s *Store) guardKey() string { return prefix + guardPart + s.opts.Head }

// guard returns the revision of the guard that the copy has.
func (s *Store) guard() int64 { return s.snapshot().revOf(s.guardKey()) }

// isGuard compares the guard.
func (s *Store) isGuard(guard int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.guardKey()), "=", guard)
}

// ForgetHead deletes the keys that a head has for its transactions. The head is no member any more: none is in flight.
func (tx *Tx) ForgetHead(head string) {
	tx.write(prefix+guardPart+head, &write{})
	tx.write(prefix+idPart+head, &write{})
}

// resolve returns the outcome of an attempt: its revision, errRerun if it was not committed and never will be, or
// ErrUnknown if ctx ends first or there is no leader.
func (s *Store) resolve(ctx context.Context, cause error, id txID, guard int64) (int64, error) {
	seen := s.pending.outcome(id).seen
	for s.pending.outcome(id).rev == 0 && s.guard() == guard {
		switch err := s.changeGuard(ctx, seen); {
		case err == nil:
		case ctx.Err() != nil || errors.Is(err, trivet.ErrUnavailable):
			return 0, &trivet.Error{Op: "update", Err: fmt.Errorf("%w: %w", trivet.ErrUnknown, cause), Hint: hintQuorum}
		default:
			_ = wait.Sleep(ctx, retryDelay)
		}
	}
	switch o := s.pending.outcome(id); {
	case o.rev != 0:
		if err := s.pending.wait(ctx, o.rev); err != nil {
			return 0, behind(err)
		}
		return o.rev, nil
	case o.missed:
		return 0, &trivet.Error{Op: "update",
			Err: fmt.Errorf("%w: the change feed skipped revisions: %w", trivet.ErrUnknown, cause)}
	}
	return 0, errRerun
}

// changeGuard writes the guard and waits until the copy has it, or until the attempt appears in the feed. Concurrent
// callers share one write.
func (s *Store) changeGuard(ctx context.Context, seen <-chan struct{}) error {
	done := s.guards.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
		defer cancel()
		return nil, s.attempt(ctx, s.writeGuard)
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

// writeGuard writes the guard, under the key that is active. It fails where another one has become active meanwhile.
func (s *Store) writeGuard(ctx context.Context) error {
	with, same, err := s.activeIn(s.snapshot())
	if err != nil {
		return err
	}
	sealed, err := s.seal(with, s.guardKey(), nil, &value{doc: []byte("{}")})
	if err != nil {
		return err
	}
	resp, err := s.client.Txn(ctx).If(same).Then(clientv3.OpPut(s.guardKey(), sealed)).Commit()
	if err != nil {
		return err
	}
	if err := s.pending.wait(ctx, resp.Header.Revision); err != nil || resp.Succeeded {
		return err
	}
	return errRerun
}

// backoff waits a random time before a rerun that follows several conflicts, so that one of many writers of a record
// succeeds.
func (s *Store) backoff(ctx context.Context, run int) {
	const free, doublings = 2, 6
	if run >= free {
		_ = wait.Sleep(ctx, time.Duration(mathrand.Int64N(int64(time.Millisecond)<<min(run-free, doublings))))
	}
}
