package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// advance takes the next step.
func (c *Controller) advance(ctx context.Context, k *trivet.Key) (after time.Duration, err error) {
	switch next := c.next(k); next {
	case create:
		return again, c.create(ctx)
	case follow:
		return again, c.step(ctx, follow, c.publishNext)
	case activate:
		if left := time.Duration(k.Spec.Grace) - c.unchanged(k); k.Status.Phase == trivet.KeyFollowing && left > 0 {
			return left, nil
		}
		return again, c.step(ctx, activate, c.activate)
	case reseal:
		return c.reseal(ctx, k)
	case drop:
		if left := time.Duration(k.Spec.Grace) - c.unchanged(k); left > 0 {
			return left, nil
		}
		return again, c.step(ctx, drop, c.endGrace)
	case finish:
		return again, c.step(ctx, finish, c.finish)
	}
	return pollInterval, c.wait(ctx)
}

// create creates the new key. It is on this head's disk before the record names it. If another head was first, the key
// of this one is dropped with the old one.
func (c *Controller) create(ctx context.Context) error {
	active, err := c.inUse()
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
		h.Status.SetKeys(c.Name, held)
		st := &k.Status
		st.Active, st.Next, st.Phase = active, id, trivet.KeyDistributing
		st.Started, st.Resealed, st.Read = c.now().UTC(), 0, 0
		return errors.Join(c.Tables.Heads.In(tx).Put(h),
			c.event(tx, k, trivet.ReasonKeyRotation, "key "+shortPin(id)+" is to replace "+shortPin(st.Active)))
	})
	if err == nil {
		c.created = ""
	}
	return err
}

// inUse returns the ID of the key in use.
func (c *Controller) inUse() (string, error) {
	if c.Contents == nil {
		return c.Ring.IDs()[0], nil
	}
	return c.Contents.Active()
}

// activate makes the new key the one in use.
func (c *Controller) activate(tx *store.Tx, k *trivet.Key, _ string) error {
	if c.Former != nil {
		return c.activateBootCA(tx, k)
	}
	st := &k.Status
	st.Old, st.Active, st.Next, st.Phase = st.Active, st.Next, "", trivet.KeyResealing
	text := "all full heads have key " + st.Active + " and use it; "
	if c.Contents == nil {
		st.Phase, st.Until = trivet.KeyFollowing, c.now().Add(time.Duration(k.Spec.Grace)).UTC()
		return c.event(tx, k, trivet.ReasonKeyActive, text+"what was made with "+st.Old+" is valid for "+
			k.Spec.Grace.String())
	}
	return errors.Join(c.Contents.Activate(tx, st.Active), c.event(tx, k, trivet.ReasonKeyActive,
		text+"what is encrypted with "+st.Old+" is encrypted again"))
}

// endGrace lets all heads drop the old key.
func (c *Controller) endGrace(_ *store.Tx, k *trivet.Key, _ string) error {
	k.Status.Phase, k.Status.Until = trivet.KeyDropping, time.Time{}
	return nil
}

// finish completes the rotation.
func (c *Controller) finish(tx *store.Tx, k *trivet.Key, _ string) error {
	st := &k.Status
	old := st.Old
	st.Phase, st.Old, st.Read, st.Rotations, st.Rotated = "", "", 0, k.Spec.Rotations, c.now().UTC()
	if c.Former != nil {
		return c.event(tx, k, trivet.ReasonKeyRotated, "no full head has the key of boot CA "+shortPin(old)+
			" any more; firmware that trusts it boots as before, until former boot CAs are dropped")
	}
	if c.Contents == nil {
		return c.event(tx, k, trivet.ReasonKeyRotated,
			"no full head has key "+old+" any more; what was made with it is refused")
	}
	return c.event(tx, k, trivet.ReasonKeyRotated, fmt.Sprintf(
		"nothing is encrypted with key %s any more, and no full head has it; %d values were encrypted again", old,
		st.Resealed))
}
