package keys

import (
	"context"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Former is the certificates of former boot CAs that this head has.
type Former interface {
	// Former returns their pins, the last one first.
	Former() []string
	// KeepFormer drops all but these.
	KeepFormer(pins []string) error
}

// maxFormer bounds the former boot CAs that are kept.
const maxFormer = 3

// decideBootCA returns the next step of the rotation of the boot CA, and what it waits for. It is that of a ring, but
// the grace is before the new one is used: then nothing needs the old one any more.
func decideBootCA(k *trivet.Key, heads []*trivet.Head) (next step, reason string) {
	switch k.Status.Phase {
	case trivet.KeyDistributing:
		if next, reason = decideNext(k, full(heads)); next == activate {
			next = follow
		}
		return next, reason
	case trivet.KeyFollowing:
		return decideNext(k, full(heads))
	}
	return decide(k, heads)
}

// publishNext lets clients get the certificate of the new boot CA, which all full heads have.
func (c *Controller) publishNext(_ *store.Tx, k *trivet.Key, _ string) error {
	k.Status.Phase = trivet.KeyFollowing
	k.Status.Until = c.now().Add(time.Duration(k.Spec.Grace)).UTC()
	return nil
}

// activateBootCA makes the new boot CA the one that signs.
func (c *Controller) activateBootCA(tx *store.Tx, k *trivet.Key) error {
	st := &k.Status
	former := slices.Concat([]string{st.Active}, st.Former)
	st.Former = former[:min(maxFormer, len(former))]
	st.Old, st.Active, st.Next, st.Phase, st.Until = st.Active, st.Next, "", trivet.KeyDropping, time.Time{}
	return c.event(tx, k, trivet.ReasonKeyActive, "all full heads have boot CA "+shortPin(st.Active)+
		" and sign by it; firmware that trusts "+shortPin(st.Old)+" accepts that by the certificate of its successor")
}

// keepFormer drops the certificates of former boot CAs that are not in the record, once a quorum confirms it.
func (c *Controller) keepFormer(ctx context.Context, k *trivet.Key) error {
	dropped := func(pin string) bool { return !slices.Contains(k.Status.Former, pin) }
	if !isSettled(&k.Status) || !slices.ContainsFunc(c.Former.Former(), dropped) {
		return nil
	}
	if err := c.confirm(ctx, k); err != nil {
		return err
	}
	return c.Former.KeepFormer(k.Status.Former)
}
