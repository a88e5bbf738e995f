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
)

// A lease spares double work: one holder at a time. Nothing rests on that alone. A holder that sleeps for too long does not
// know that it was replaced; what it writes goes through transactions that compare the lease (Check), and is refused.
//
// A lease is two keys. -lease/NAME is written when the holder changes: the revision of that write is the fence. -beat/NAME is
// rewritten by the holder, so that its transactions do not conflict with its beats. No two clocks are compared: who wants the
// lease takes it when it has seen no new beat for as long as the holder promised one, by its own clock.

// Lease is what Hold's function holds.
type Lease struct {
	store     *Store
	name, uid string
	ttl       time.Duration
	fence     int64
	until     atomic.Pointer[time.Time] // it is surely held
}

// holder is what a lease's key says.
type holder struct {
	Kind string        `json:"kind"`
	UID  string        `json:"uid"` // of one call of Hold
	TTL  time.Duration `json:"ttl"`
}

// WithLease waits for a lease, runs do while it is held, and lets it go. The lease is beaten four times in ttl, and do's context
// ends at three quarters of ttl after the last beat that was acknowledged: before anybody else can hold it. It gives do's
// error, which is an ErrFenced as well where the lease was lost. Waiting ends with ctx: ErrUnavailable.
func (s *Store) WithLease(ctx context.Context, name string, ttl time.Duration, do func(context.Context, *Lease) error) error {
	l := &Lease{store: s, name: name, uid: rand.Text(), ttl: ttl}
	if err := trivet.ValidateName(name); err != nil || ttl <= 0 {
		return l.fail("hold", errors.Join(trivet.ErrInvalid, err))
	}
	began, err := l.acquire(ctx)
	if err != nil {
		return l.fail("hold", err)
	}
	l.holds(began)
	held, lose := context.WithCancelCause(ctx)
	expiry := time.AfterFunc(time.Until(began.Add(l.own())), func() { lose(l.fail("keep", trivet.ErrFenced)) })
	beaten := make(chan struct{})
	go func() { defer close(beaten); l.keep(held, lose, expiry) }()
	err = do(held, l)
	lost := context.Cause(held)
	lose(nil)
	<-beaten
	expiry.Stop()
	l.release(ctx)
	if err != nil && errors.Is(lost, trivet.ErrFenced) && !errors.Is(err, trivet.ErrFenced) {
		err = fmt.Errorf("%w: %w", lost, err)
	}
	return err
}

// Check makes a transaction one of the lease's holder: it says ErrFenced where that is no longer so, and the commit compares it.
func (l *Lease) Check(tx *Tx) error {
	if e := tx.read(l.key()); e == nil || e.rev != l.fence {
		return l.fail("write under", trivet.ErrFenced)
	}
	return nil
}

// Held says whether the lease is surely held now, by the clock. do's context ends when it is not; after the process was stopped
// for long, that may be a moment later.
func (l *Lease) Held() bool { return time.Now().Before(*l.until.Load()) }

// holds notes a beat that was acknowledged, and was sent at a time.
func (l *Lease) holds(sent time.Time) {
	until := sent.Add(l.own())
	l.until.Store(&until)
}

// Fence rises with each holder of the lease, for those who can refuse an older one.
func (l *Lease) Fence() int64 { return l.fence }

func (l *Lease) key() string     { return recordKey(leasePart, l.name) }
func (l *Lease) beatKey() string { return recordKey(beatPart, l.name) }

// own is how long a beat holds for the holder; for everybody else it holds for ttl.
func (l *Lease) own() time.Duration { return l.ttl - l.ttl/4 }

func (l *Lease) fail(op string, err error) error {
	return &trivet.Error{Op: op + " lease", Name: l.name, Err: err}
}

// errHeld: somebody else holds the lease.
var errHeld = errors.New("held")

// acquire takes the lease, as soon as that can be done, and gives a time from which on it is surely held for ttl.
func (l *Lease) acquire(ctx context.Context) (began time.Time, err error) {
	for expired := int64(0); ; {
		watch := l.store.Watch(0, leasePart)
		began = time.Now()
		err := l.take(ctx, expired)
		switch {
		case err == nil:
			return began, nil
		case ctx.Err() != nil:
			return began, unavailable(ctx.Err())
		case errors.Is(err, errHeld):
			expired = l.await(ctx, watch)
		default: // without a quorum now, or the outcome is not known: a later take finds out
			pause(ctx, l.ttl/8)
		}
	}
}

// take makes the lease ours if it is free, ours already, or its last beat is the one that is known to have expired.
func (l *Lease) take(ctx context.Context, expired int64) error {
	mine := int64(0)
	rev, err := l.store.Update(ctx, func(tx *Tx) error {
		e, beat := tx.read(l.key()), tx.read(l.beatKey())
		mine = 0
		switch {
		case e != nil && holderOf(e).UID == l.uid:
			mine = e.rev
		case e != nil && beat != nil && beat.rev != expired:
			return errHeld
		}
		if mine == 0 {
			doc, err := json.Marshal(holder{Kind: "lease", UID: l.uid, TTL: l.ttl})
			if err != nil {
				return err
			}
			tx.write(l.key(), &write{doc: doc})
		}
		tx.write(l.beatKey(), &write{doc: []byte(`{"kind":"beat"}`)})
		return nil
	})
	if l.fence = mine; mine == 0 {
		l.fence = rev
	}
	return err
}

// holderOf reads a lease's key. Whoever wrote something else there holds it for no time.
func holderOf(e *entry) (h holder) {
	_ = json.Unmarshal(e.doc, &h)
	return h
}

// await returns when the lease is let go, or when its holder has not beaten for as long as it promised to: then it gives the
// revision of the last beat. It looks at the copy for beats, which have no events, a few times in that while.
func (l *Lease) await(ctx context.Context, watch *Watcher) (expired int64) {
	e := l.store.snapshot().get(l.key())
	if e == nil {
		return 0
	}
	promised, seen := holderOf(e).TTL, time.Now()
	for beat := int64(0); ; {
		if now := l.store.snapshot().revOf(l.beatKey()); now != beat {
			beat, seen = now, time.Now()
		}
		if time.Since(seen) >= promised || ctx.Err() != nil {
			return beat
		}
		moment, cancel := context.WithTimeout(ctx, min(promised/8+time.Millisecond, time.Until(seen.Add(promised))))
		events, err := watch.Next(moment)
		waited := moment.Err() != nil
		cancel()
		for _, ev := range events {
			if ev.Name == l.name && ev.Revision > e.rev {
				return 0
			}
		}
		if err != nil && !waited {
			pause(ctx, l.ttl/8)
			return 0
		}
	}
}

// keep beats until ctx ends or the lease is lost.
func (l *Lease) keep(ctx context.Context, lose context.CancelCauseFunc, expiry *time.Timer) {
	for pause(ctx, l.ttl/4); ctx.Err() == nil; pause(ctx, l.ttl/4) {
		sent := time.Now()
		_, err := l.store.Update(ctx, func(tx *Tx) error {
			tx.write(l.beatKey(), &write{doc: []byte(`{"kind":"beat"}`)})
			return l.Check(tx)
		})
		switch {
		case err == nil:
			l.holds(sent)
			expiry.Reset(time.Until(sent.Add(l.own())))
		case errors.Is(err, trivet.ErrFenced):
			lose(err)
		}
	}
}

// release lets the lease go. Where that fails it expires.
func (l *Lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.store.opts.Timeout)
	defer cancel()
	_, err := l.store.Update(ctx, func(tx *Tx) error {
		if err := l.Check(tx); err != nil {
			return err
		}
		tx.write(l.key(), &write{})
		tx.write(l.beatKey(), &write{})
		return nil
	})
	if err != nil && !errors.Is(err, trivet.ErrFenced) {
		l.store.log.Warn("a lease could not be let go; it will expire", "lease", l.name, "after", l.ttl, "error", err)
	}
}
