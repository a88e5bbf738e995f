package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// rotation is what the rotations of all keys have in common.
type rotation struct {
	name   string // of the record
	head   string // this one
	tables *state.Tables
	rank   func(key string) int
	decide func(*trivet.Key, []*trivet.Head) (next step, reason string)
	now    func() time.Time

	seen      int64     // the revision of the record that was seen last
	seenSince time.Time // when it was first seen
}

func newRotation(name, head string, tables *state.Tables, rank func(string) int,
	decide func(*trivet.Key, []*trivet.Head) (step, string)) rotation {
	return rotation{name: name, head: head, tables: tables, rank: rank, decide: decide, now: time.Now}
}

const (
	// again is the delay before the next step, where there is one.
	again = time.Millisecond
	// pollInterval is how often a head checks a rotation that waits, or that another head drives.
	pollInterval = 5 * time.Second
	// stallTime is how long a head leaves a rotation to each head that ranks before it, while its record does not
	// change.
	stallTime = 30 * time.Second
)

// record returns the record; an empty one where nothing was rotated yet.
func (r *rotation) record() (*trivet.Key, error) {
	k, err := r.tables.Keys.Get(r.name)
	if errors.Is(err, trivet.ErrNotFound) {
		return &trivet.Key{Meta: trivet.Meta{Name: r.name}}, nil
	}
	return k, err
}

// unchanged returns for how long this head has seen the record as it is.
func (r *rotation) unchanged(k *trivet.Key) time.Duration {
	if k.Revision != r.seen {
		r.seen, r.seenSince = k.Revision, r.now()
	}
	return r.now().Sub(r.seenSince)
}

// drives reports whether this head takes the next step: it ranks first, or those before it have not done so for a
// while.
func (r *rotation) drives(k *trivet.Key) bool {
	return r.unchanged(k) >= time.Duration(r.rank(k.Name))*stallTime
}

// next decides by this head's copy. The step decides again by what its transaction reads.
func (r *rotation) next(k *trivet.Key) step {
	next, _ := r.decide(k, slices.DeleteFunc(r.members(), func(h *trivet.Head) bool { return !isMember(h) }))
	return next
}

// members returns the members of the cluster, and those that are being removed, by this head's copy.
func (r *rotation) members() (heads []*trivet.Head) {
	for h := range r.tables.Heads.AllShared() {
		if h.Status.State != trivet.HeadRemoved {
			heads = append(heads, h)
		}
	}
	return heads
}

// isMember reports whether a head is a member that is not being removed; a witness is.
func isMember(h *trivet.Head) bool { return !h.Spec.Remove && h.Status.State != trivet.HeadRemoved }

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("nothing to write")

func (r *rotation) update(ctx context.Context, do func(tx *store.Tx) error) error {
	if _, err := r.tables.Store.Update(ctx, do); err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}

// step takes a step in one transaction, if it still is the next one.
func (r *rotation) step(ctx context.Context, want step,
	do func(tx *store.Tx, k *trivet.Key, reason string) error) error {
	return r.update(ctx, func(tx *store.Tx) error {
		k, err := r.tables.Keys.In(tx).Get(r.name)
		if err != nil {
			return err
		}
		heads, err := r.heads(tx)
		if err != nil {
			return err
		}
		next, reason := r.decide(k, heads)
		if next != want {
			return errUnchanged
		}
		k.Status.Reason = ""
		return errors.Join(do(tx, k, reason), r.tables.Keys.In(tx).Put(k))
	})
}

// wait records what the rotation waits for.
func (r *rotation) wait(ctx context.Context) error {
	return r.step(ctx, waiting, func(_ *store.Tx, k *trivet.Key, reason string) error {
		k.Status.Reason = reason
		return nil
	})
}

// heads returns the members of the cluster, which the commit compares.
func (r *rotation) heads(tx *store.Tx) (heads []*trivet.Head, err error) {
	for _, listed := range r.tables.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		h, err := r.tables.Heads.In(tx).Get(listed.Name)
		if err != nil {
			return nil, err
		}
		if isMember(h) {
			heads = append(heads, h)
		}
	}
	return heads, nil
}

// confirm fails where the record is another one than a quorum has. Afterwards this head's copy has what it had then.
func (r *rotation) confirm(ctx context.Context, k *trivet.Key) error {
	return r.update(ctx, func(tx *store.Tx) error {
		now, err := r.tables.Keys.In(tx).Get(k.Name)
		if err == nil && (now.Status.Active != k.Status.Active || now.Status.Phase != k.Status.Phase) {
			err = fmt.Errorf("%w: the record has changed", trivet.ErrConflict)
		}
		return err
	})
}

// publish writes what this head has into its record.
func (r *rotation) publish(ctx context.Context, set func(*trivet.Head) (changed bool)) error {
	h, err := r.tables.Heads.Get(r.head)
	if err != nil || !set(h) { // a head that has no record yet writes it with them
		return nil
	}
	return r.update(ctx, func(tx *store.Tx) error {
		h, err := r.tables.Heads.In(tx).Get(r.head)
		switch {
		case err != nil:
			return err
		case !set(h):
			return errUnchanged
		}
		return r.tables.Heads.In(tx).Put(h)
	})
}

// event writes an event of the record.
func (r *rotation) event(tx *store.Tx, k *trivet.Key, reason, message string) error {
	k.Status.Events++
	return r.tables.Events.In(tx).Put(&trivet.Event{
		Meta: trivet.Meta{Name: trivet.KeyEventName(k.Name, k.Status.Events)},
		Spec: trivet.EventSpec{Subject: "key/" + k.Name, SubjectUID: k.UID, Seq: k.Status.Events, Time: r.now(),
			Reason: reason, Message: message, Head: r.head},
	})
}
