package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// A lease has one holder at a time and avoids duplicate work. Correctness does not depend on it alone: a holder that
// was suspended does not know that it was replaced, so its writes go through transactions that compare the lease
// (Check) and are refused.
//
// A lease is two keys. -lease/NAME is written when the holder changes: the revision of that write is the fence.
// -renew/NAME is rewritten by the holder, so that its transactions do not conflict with its renewals. No two clocks
// are compared: a waiter takes the lease over when, by its own clock, it has seen no renewal for the holder's TTL.

// Lease is a lease that is held by the function of WithLease.
type Lease struct {
	store     *Store
	name, uid string
	ttl       time.Duration
	fence     int64
	until     atomic.Pointer[time.Time] // held until then
}

// holder is the value of a lease's key.
type holder struct {
	Kind string        `json:"kind"`
	UID  string        `json:"uid"` // of one call of WithLease
	TTL  time.Duration `json:"ttl"`
}

// WithLease waits for a lease, runs do while it is held, and releases it. The lease is renewed four times per ttl,
// and do's context ends three quarters of ttl after the last acknowledged renewal, before another holder can acquire
// the lease. It returns do's error, which is also an ErrFenced if the lease was lost, or ErrUnavailable if ctx ends
// while waiting.
func (s *Store) WithLease(ctx context.Context, name string, ttl time.Duration,
	do func(context.Context, *Lease) error) error {
	l := &Lease{store: s, name: name, uid: rand.Text(), ttl: ttl}
	if err := trivet.ValidateName(name); err != nil || ttl <= 0 {
		return l.fail("hold", errors.Join(trivet.ErrInvalid, err))
	}
	began, err := l.acquire(ctx)
	if err != nil {
		return l.fail("hold", err)
	}
	l.extend(began)
	held, lose := context.WithCancelCause(ctx)
	expiry := time.AfterFunc(time.Until(began.Add(l.safeTTL())), func() { lose(l.fail("renew", trivet.ErrFenced)) })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		l.renewLoop(held, lose, expiry)
	}()
	err = do(held, l)
	lost := context.Cause(held)
	lose(nil)
	<-stopped
	expiry.Stop()
	l.release(ctx)
	if err != nil && errors.Is(lost, trivet.ErrFenced) && !errors.Is(err, trivet.ErrFenced) {
		err = fmt.Errorf("%w: %w", lost, err)
	}
	return err
}

// Check makes a transaction conditional on the lease: it returns ErrFenced if the lease was lost, and the commit
// compares it.
func (l *Lease) Check(tx *Tx) error {
	if e := tx.read(l.key()); e == nil || e.rev != l.fence {
		return l.fail("write under", trivet.ErrFenced)
	}
	return nil
}

// Held reports whether the lease is held now, by the clock. do's context ends when it is not, or shortly after if the
// process was suspended.
func (l *Lease) Held() bool { return time.Now().Before(*l.until.Load()) }

// extend records that a renewal sent at a time was acknowledged.
func (l *Lease) extend(sent time.Time) {
	until := sent.Add(l.safeTTL())
	l.until.Store(&until)
}

// Fence returns the fencing token, which increases with each holder of the lease.
func (l *Lease) Fence() int64 { return l.fence }

func (l *Lease) key() string      { return recordKey(leasePart, l.name) }
func (l *Lease) renewKey() string { return recordKey(renewPart, l.name) }

// safeTTL is how long the holder relies on a renewal. Waiters wait for ttl.
func (l *Lease) safeTTL() time.Duration { return l.ttl - l.ttl/4 }

func (l *Lease) fail(op string, err error) error {
	return &trivet.Error{Op: op + " lease", Name: l.name, Err: err}
}

// errHeld: the lease has another holder.
var errHeld = errors.New("held by another head")

// acquire waits until it has the lease, and returns a time from which the lease is held for ttl.
func (l *Lease) acquire(ctx context.Context) (began time.Time, err error) {
	for expired := int64(0); ; {
		watch := l.store.Watch(0, leasePart)
		began = time.Now()
		err := l.tryAcquire(ctx, expired)
		switch {
		case err == nil:
			return began, nil
		case ctx.Err() != nil:
			return began, unavailable(ctx.Err())
		case errors.Is(err, errHeld):
			expired = l.waitFree(ctx, watch)
		default: // no quorum, or the outcome is unknown: the next attempt resolves it
			_ = wait.Sleep(ctx, l.ttl/8)
		}
	}
}

// tryAcquire acquires the lease if it is free, already ours, or if its last renewal is the one known to have expired.
func (l *Lease) tryAcquire(ctx context.Context, expired int64) error {
	mine := int64(0)
	rev, err := l.store.Update(ctx, func(tx *Tx) error {
		e, renewal := tx.read(l.key()), tx.read(l.renewKey())
		mine = 0
		switch {
		case e != nil && holderOf(e).UID == l.uid:
			mine = e.rev
		case e != nil && renewal != nil && renewal.rev != expired:
			return errHeld
		}
		if mine == 0 {
			doc, err := json.Marshal(holder{Kind: "lease", UID: l.uid, TTL: l.ttl})
			if err != nil {
				return err
			}
			tx.write(l.key(), &write{doc: doc})
		}
		tx.write(l.renewKey(), &write{doc: []byte(renewDoc)})
		return nil
	})
	if l.fence = mine; mine == 0 {
		l.fence = rev
	}
	return err
}

const renewDoc = `{"kind":"renew"}`

// holderOf decodes a lease's key. A value that cannot be decoded has a TTL of 0.
func holderOf(e *entry) (h holder) {
	_ = json.Unmarshal(e.doc(), &h)
	return h
}

// waitFree returns when the lease is released, or when its holder has not renewed it for its TTL: then it returns the
// revision of the last renewal. Renewals have no events, so it polls the local copy.
func (l *Lease) waitFree(ctx context.Context, watch *Watcher) (expired int64) {
	e := l.store.snapshot().get(l.key())
	if e == nil {
		return 0
	}
	ttl, seen := holderOf(e).TTL, time.Now()
	for renewal := int64(0); ; {
		if now := l.store.snapshot().changeOf(l.renewKey()); now != renewal {
			renewal, seen = now, time.Now()
		}
		if time.Since(seen) >= ttl || ctx.Err() != nil {
			return renewal
		}
		poll, cancel := context.WithTimeout(ctx, min(ttl/8+time.Millisecond, time.Until(seen.Add(ttl))))
		events, err := watch.Next(poll)
		timedOut := poll.Err() != nil
		cancel()
		for _, ev := range events {
			if ev.Name == l.name && ev.Revision > e.rev {
				return 0
			}
		}
		if err != nil && !timedOut {
			_ = wait.Sleep(ctx, l.ttl/8)
			return 0
		}
	}
}

// renewLoop renews the lease until ctx ends or the lease is lost.
func (l *Lease) renewLoop(ctx context.Context, lose context.CancelCauseFunc, expiry *time.Timer) {
	for _ = wait.Sleep(ctx, l.ttl/4); ctx.Err() == nil; _ = wait.Sleep(ctx, l.ttl/4) {
		sent := time.Now()
		_, err := l.store.Update(ctx, func(tx *Tx) error {
			tx.write(l.renewKey(), &write{doc: []byte(renewDoc)})
			return l.Check(tx)
		})
		switch {
		case err == nil:
			l.extend(sent)
			expiry.Reset(time.Until(sent.Add(l.safeTTL())))
		case errors.Is(err, trivet.ErrFenced):
			lose(err)
		}
	}
}

// release releases the lease. If that fails, the lease expires.
func (l *Lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.store.opts.Timeout)
	defer cancel()
	_, err := l.store.Update(ctx, func(tx *Tx) error {
		if err := l.Check(tx); err != nil {
			return err
		}
		tx.write(l.key(), &write{})
		tx.write(l.renewKey(), &write{})
		return nil
	})
	if err != nil && !errors.Is(err, trivet.ErrFenced) {
		l.store.log.Warn("cannot release a lease; it expires", "lease", l.name, "ttl", l.ttl, "error", err)
	}
}
