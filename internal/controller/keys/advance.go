package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// again is the delay before the next step, where there is one.
const again = time.Millisecond

// advance takes the next step.
func (c *Controller) advance(ctx context.Context, k *trivet.Key) (after time.Duration, err error) {
	switch c.next(k) {
	case create:
		return again, c.create(ctx)
	case activate:
		return again, c.step(ctx, activate, c.activate)
	case reseal:
		return c.reseal(ctx, k)
	case finish:
		return again, c.step(ctx, finish, c.finish)
	}
	return pollInterval, c.step(ctx, waiting, func(_ *store.Tx, k *trivet.Key, reason string) error {
		k.Status.Reason = reason
		return nil
	})
}

// next decides by this head's copy. The step decides again by what its transaction reads.
func (c *Controller) next(k *trivet.Key) step {
	var heads []*trivet.Head
	for h := range c.Tables.Heads.AllShared() {
		if h.Serves() {
			heads = append(heads, h)
		}
	}
	next, _ := decide(k, heads)
	return next
}

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("nothing to write")

func (c *Controller) update(ctx context.Context, do func(tx *store.Tx) error) error {
	if _, err := c.Tables.Store.Update(ctx, do); err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}

// step takes a step in one transaction, if it still is the next one.
func (c *Controller) step(ctx context.Context, want step,
	do func(tx *store.Tx, k *trivet.Key, reason string) error) error {
	return c.update(ctx, func(tx *store.Tx) error {
		k, err := c.Tables.Keys.In(tx).Get(trivet.StoreKey)
		if err != nil {
			return err
		}
		heads, err := c.heads(tx)
		if err != nil {
			return err
		}
		next, reason := decide(k, heads)
		if next != want {
			return errUnchanged
		}
		k.Status.Reason = ""
		return errors.Join(do(tx, k, reason), c.Tables.Keys.In(tx).Put(k))
	})
}

// heads returns the full heads of the cluster, which the commit compares.
func (c *Controller) heads(tx *store.Tx) (heads []*trivet.Head, err error) {
	for _, listed := range c.Tables.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		h, err := c.Tables.Heads.In(tx).Get(listed.Name)
		if err != nil {
			return nil, err
		}
		if h.Serves() {
			heads = append(heads, h)
		}
	}
	return heads, nil
}

// create creates the new key. It is on this head's disk before the record names it. If another head was first, the key
// of this one is dropped with the old one.
func (c *Controller) create(ctx context.Context) error {
	active, err := c.Tables.Store.Active()
	if err != nil {
		return err
	}
	if !slices.Contains(c.Ring.IDs(), c.created) { // an attempt that failed may be repeated with its key
		if c.created, err = c.Ring.Create(); err != nil {
			return err
		}
	}
	id, held := c.created, c.Ring.IDs()
	err = c.step(ctx, create, func(tx *store.Tx, k *trivet.Key, _ string) error {
		h, err := c.Tables.Heads.In(tx).Get(c.Head)
		if err != nil {
			return err
		}
		h.Status.StoreKeys = held
		st := &k.Status
		st.Active, st.Next, st.Phase = active.String(), id, trivet.KeyDistributing
		st.Started, st.Resealed, st.Read = c.now().UTC(), 0, 0
		return errors.Join(c.Tables.Heads.In(tx).Put(h),
			c.event(tx, k, trivet.ReasonKeyRotation, "key "+id+" is to replace "+st.Active))
	})
	if err == nil {
		c.created = ""
	}
	return err
}

// activate makes the new key the active one.
func (c *Controller) activate(tx *store.Tx, k *trivet.Key, _ string) error {
	st := &k.Status
	id, err := keyring.ParseID(st.Next)
	if err != nil {
		return err
	}
	st.Old, st.Active, st.Next, st.Phase = st.Active, st.Next, "", trivet.KeyResealing
	return errors.Join(tx.SetActive(id), c.event(tx, k, trivet.ReasonKeyActive,
		"all full heads have key "+st.Active+" and use it; what is encrypted with "+st.Old+" is encrypted again"))
}

// finish completes the rotation.
func (c *Controller) finish(tx *store.Tx, k *trivet.Key, _ string) error {
	st := &k.Status
	old := st.Old
	st.Phase, st.Old, st.Read, st.Rotations, st.Rotated = "", "", 0, k.Spec.Rotations, c.now().UTC()
	return c.event(tx, k, trivet.ReasonKeyRotated, fmt.Sprintf(
		"nothing is encrypted with key %s any more, and no full head has it; %d values were encrypted again", old,
		st.Resealed))
}

// event writes an event of the record.
func (c *Controller) event(tx *store.Tx, k *trivet.Key, reason, message string) error {
	k.Status.Events++
	return c.Tables.Events.In(tx).Put(&trivet.Event{
		Meta: trivet.Meta{Name: trivet.KeyEventName(k.Name, k.Status.Events)},
		Spec: trivet.EventSpec{Subject: "key/" + k.Name, SubjectUID: k.UID, Seq: k.Status.Events, Time: c.now(),
			Reason: reason, Message: message, Head: c.Head},
	})
}
