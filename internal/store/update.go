package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
)

// Update runs fn in a transaction and returns the revision at which it was committed. When it returns without error,
// local reads see the result. If fn wrote nothing, the revision is one at which everything that fn read was current.
//
// fn may run several times, each time on a newer snapshot, and must have no effects besides tx: no requests, no
// counters, no variables that a later run would see. An error of fn ends the transaction and is returned unchanged,
// after a quorum confirmed what fn had read.
//
// Errors: fn's own; ErrTooLarge; ErrUnavailable if nothing was written; ErrUnknown if the outcome could not be
// resolved.
func (s *Store) Update(ctx context.Context, fn func(tx *Tx) error) (int64, error) {
	return s.measure(ctx, func(ctx context.Context) (int64, error) { return s.update(ctx, fn, s.send) })
}

// sender sends the compares and operations of one transaction, and returns the response to it.
type sender func(ctx context.Context, ifs []clientv3.Cmp, thens []clientv3.Op) (response, error)

// response is etcd's response to one transaction.
type response struct {
	committed bool
	revision  int64
	at        time.Time
	err       error
	guard     int64 // with which it was sent, also if there was no response: see resolve
}

// measure bounds an update in time, and counts it by its result.
func (s *Store) measure(ctx context.Context, update func(ctx context.Context) (int64, error)) (int64, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	began := time.Now()
	rev, err := update(ctx)
	s.metrics.updates.WithLabelValues(resultOf(err)).Observe(time.Since(began).Seconds())
	return rev, err
}

func resultOf(err error) string {
	for _, known := range []error{
		trivet.ErrUnknown, trivet.ErrUnavailable, trivet.ErrConflict, trivet.ErrFenced, trivet.ErrNotFound,
		trivet.ErrExists,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "failed"
	}
	return "ok"
}

func (s *Store) update(ctx context.Context, fn func(tx *Tx) error, send sender) (int64, error) {
	var id txID
	rand.Read(id[:])
	s.pending.begin(id)
	defer s.pending.end(id)
	for run := 0; ; run++ {
		if err := ctx.Err(); err != nil {
			return 0, noQuorum("update", err)
		}
		tx := s.begin(ctx, s.snapshot(), id)
		err := tx.run(ctx, fn)
		if err == nil {
			tx.writeListKeys()
			tx.separateSpecs()
			err = tx.packPages()
		}
		var rev int64
		if unread := tx.unread(); unread != nil {
			err = unread
		} else if err != nil || len(tx.order) == 0 {
			rev, err = s.confirm(ctx, tx, err)
		} else {
			rev, err = s.commit(ctx, tx, send)
		}
		if err == nil {
			tx.wasCommitted()
		}
		if !errors.Is(err, errRerun) {
			return rev, err
		}
		s.metrics.reruns.Inc()
		s.backoff(ctx, run)
	}
}

// errRerun: a record that fn read has changed.
var errRerun = errors.New("run again")

const (
	hintLeader = "writes need a majority of the heads: check which are up with: trivet head list; " +
		"on a single head, see its log"
	hintQuorum = "the store did not respond in time: it has no quorum or a slow disk; see the head's log"
)

// unavailable wraps an error after which it is known that nothing was written.
func unavailable(err error) error { return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err) }

// noQuorum wraps the error of a call that needs a quorum and wrote nothing.
func noQuorum(op string, err error) error {
	if errors.Is(err, trivet.ErrUnavailable) { // already wrapped
		return err
	}
	return &trivet.Error{Op: op, Err: unavailable(err), Hint: hintQuorum}
}

// confirm ends a transaction that writes nothing, with fn's error, if a quorum has nothing newer than what fn read.
// Otherwise fn may have decided on a stale copy.
func (s *Store) confirm(ctx context.Context, tx *Tx, fnErr error) (int64, error) {
	if len(tx.reads) == 0 || faultinject.StaleRead {
		return tx.snap.rev, fnErr
	}
	if err := s.sync(ctx); err != nil {
		if fnErr != nil {
			err = fmt.Errorf("%w; not confirmed: %v", err, fnErr)
		}
		return 0, noQuorum("update", err)
	}
	now := s.snapshot()
	for key, rev := range tx.reads {
		is, err := s.modAt(ctx, now, key)
		if err != nil {
			return 0, err
		}
		if is != rev {
			return 0, errRerun
		}
	}
	return now.rev, fnErr
}

// commit attempts to commit the writes of fn.
func (s *Store) commit(ctx context.Context, tx *Tx, send sender) (int64, error) {
	ifs, thens, err := s.operations(tx)
	if err != nil {
		return 0, err
	}
	if err := s.opts.Admit(tx.growth()); err != nil {
		return 0, err
	}
	s.own.add(tx.sent)
	defer s.own.remove(tx.sent)
	resp, err := send(ctx, ifs, thens)
	if err != nil {
		return s.failed(ctx, err, tx.id, resp.guard)
	}
	if err := s.pending.wait(ctx, resp.revision); err != nil {
		return s.late(resp, err)
	}
	s.metrics.lag.Observe(time.Since(resp.at).Seconds())
	if !resp.committed {
		return 0, errRerun
	}
	return resp.revision, nil
}

// send sends a transaction by itself.
func (s *Store) send(ctx context.Context, ifs []clientv3.Cmp, thens []clientv3.Op) (response, error) {
	guard := s.guard()
	r, err := s.sendWhole(ctx, append(ifs, s.isGuard(guard)), thens)
	r.guard = guard
	return r, err
}

// sendWhole sends all compares, with that of the guard, and operations.
func (s *Store) sendWhole(ctx context.Context, ifs []clientv3.Cmp, thens []clientv3.Op) (response, error) {
	var resp *clientv3.TxnResponse
	err := s.attempt(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Txn(ctx).If(ifs...).Then(thens...).Commit()
		return err
	})
	if err != nil {
		return response{}, err
	}
	return response{committed: resp.Succeeded, revision: resp.Header.Revision, at: time.Now()}, nil
}

// late returns the result of a commit whose revision the copy did not reach in time.
func (s *Store) late(resp response, err error) (int64, error) {
	if !resp.committed {
		return 0, &trivet.Error{Op: "update", Err: unavailable(err)}
	}
	return 0, behind(err)
}

func behind(err error) error {
	return &trivet.Error{Op: "update",
		Err: fmt.Errorf("%w: committed, but this head's copy is behind: %w", trivet.ErrUnknown, err)}
}

// failed handles an attempt without a response.
func (s *Store) failed(ctx context.Context, err error, id txID, guard int64) (int64, error) {
	if refused, why := refusal(err); refused {
		return 0, why
	}
	s.metrics.unknowns.Inc()
	if faultinject.WriteLost {
		return s.snapshot().rev, nil
	}
	if s.defects.forgetID {
		return 0, errRerun
	}
	return s.resolve(ctx, err, id, guard)
}

// refusal reports whether etcd refused a transaction before it could have had any effect, and returns the error with
// a hint.
func refusal(err error) (bool, error) {
	switch {
	case errors.Is(err, trivet.ErrUnavailable): // no leader or no disk space: nothing was sent
		return true, err
	case errors.Is(err, rpctypes.ErrCorrupt):
		return true, &trivet.Error{Op: "update", Err: unavailable(err),
			Hint: "the data of the heads differs: see their logs; a head that reports so is replaced by " +
				"'trivet head replace'; if none does, restore all heads from a backup"}
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return true, &trivet.Error{Op: "update", Err: unavailable(err),
			Hint: "the store is overloaded; try again"}
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		return true, &trivet.Error{Op: "update", Err: fmt.Errorf("%w: %w", trivet.ErrTooLarge, err)}
	}
	return false, nil
}

// operations converts a transaction to etcd's compares, without that of the guard, and operations.
func (s *Store) operations(tx *Tx) (ifs []clientv3.Cmp, thens []clientv3.Op, err error) {
	for _, key := range tx.order {
		if _, read := tx.reads[key]; !read && tx.writes[key].doc != nil && isBound(key) {
			tx.read(key)
		}
	}
	if len(tx.reads) > MaxOps || len(tx.order) > MaxOps {
		return nil, nil, tooLarge("a transaction of %d reads and %d writes; the maximum is %d",
			len(tx.reads), len(tx.order), MaxOps)
	}
	with, same, err := s.activeIn(tx.snap)
	if err != nil {
		return nil, nil, err
	}
	if ifs = append(ifs, same); !s.defects.noCompare {
		for key, rev := range tx.reads {
			ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(key), "=", rev))
		}
	}
	size, puts := 0, 0
	for _, key := range tx.order {
		if w := tx.writes[key]; w.doc != nil {
			v, was := w.value(tx.id), tx.entry(key)
			sealed, err := s.seal(with, key, was, &v)
			if err != nil {
				return nil, nil, err
			}
			thens, size = append(thens, clientv3.OpPut(key, sealed)), size+len(key)+max(len(sealed), len(v.doc))
			if strings.HasPrefix(key, prefix) || isHistory(key) { // what the feed reads
				tx.sent = append(tx.sent, tx.own(key, w, was, v, sealed, with))
			}
			if !isCold(key) && !isList(key) { // that of a list may be written by another one of its group
				puts++
			}
		} else if w.end != "" {
			thens = append(thens, clientv3.OpDelete(key, clientv3.WithRange(w.end)))
		} else {
			thens = append(thens, clientv3.OpDelete(key))
		}
	}
	if puts == 0 { // no record that the feed reads carries the ID
		key := prefix + idPart + s.opts.Head
		sealed, err := s.seal(with, key, nil, &value{doc: []byte(`{"kind":"tx"}`), tx: tx.id})
		if err != nil {
			return nil, nil, err
		}
		thens = append(thens, clientv3.OpPut(key, sealed))
	}
	if size > MaxBytes {
		return nil, nil, tooLarge("a transaction of %d bytes; the maximum is %d", size, MaxBytes)
	}
	return ifs, thens, nil
}

func tooLarge(format string, args ...any) error {
	return &trivet.Error{Op: "update", Err: fmt.Errorf("%w: "+format, append([]any{trivet.ErrTooLarge}, args...)...),
		Hint: "write fewer or smaller records at once"}
}
