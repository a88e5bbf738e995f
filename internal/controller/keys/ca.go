package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// CAs is the CAs that this head has.
type CAs interface {
	InUse() []string                                 // pins of those of this process, the one that signs first
	Stored() []string                                // pins of those on the disk, which the next start uses
	Create() (pin string, err error)                 // adds a new CA
	Fetch(ctx context.Context, pins ...string) error // adds CAs of other heads
	Use(pins []string) error                         // makes these the ones of the next start
}

// CADeclaration is what the controller of the CA reads and writes.
var CADeclaration = reconcile.Declaration{
	Name:    "ca",
	Reads:   []trivet.Kind{"Upgrade"},
	Writes:  []trivet.Kind{"Key", "Head", "Event"},
	Watches: []trivet.Kind{"Key", "Head"},
	Input:   caInput,
	Workers: 1,
}

// caInput is what the steps of a rotation of the CA rest on.
func caInput(r trivet.Record) any {
	switch r := r.(type) {
	case *trivet.Head:
		return strings.Join(r.Status.CAs, " ") + "," + strings.Join(r.Status.StoredCAs, " ") + string(r.Status.State)
	case *trivet.Key:
		return string(r.Status.Phase) + r.Status.Next
	}
	return nil
}

// CAConfig is what the controller of the CA needs.
type CAConfig struct {
	Head   string
	CAs    CAs
	Tables *state.Tables
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
	// Healthy reports whether another member responds, has caught up and knows a leader, and did so for a while since
	// the start that its record has.
	Healthy func(*trivet.Head) bool
	// Restart makes this head start again. It returns at once.
	Restart func()
	Log     *slog.Logger
}

// CAController rotates the CA. It implements [reconcile.Controller]; its key is the name of the record.
//
// A process cannot change the CAs that the store's connections to other members trust, so that each phase of a rotation
// is one start of each head, one after the other.
type CAController struct {
	CAConfig
	rotation
	created string // the CA that this head created, where it is not known that the record names it
}

// NewCA returns the controller of the CA.
func NewCA(cfg CAConfig) *CAController {
	c := &CAController{CAConfig: cfg}
	c.rotation = newRotation(trivet.CAKey, cfg.Head, cfg.Tables, cfg.Rank, decideCA)
	return c
}

// Declaration implements [reconcile.Controller].
func (c *CAController) Declaration() reconcile.Declaration { return CADeclaration }

// Keys implements [reconcile.Controller].
func (c *CAController) Keys() []string { return []string{trivet.CAKey} }

// Affected implements [reconcile.Controller].
func (c *CAController) Affected(*store.Event) []string { return []string{trivet.CAKey} }

// restartPoll is how often a head that is to start again checks whether it may.
const restartPoll = time.Second

// Reconcile implements [reconcile.Controller].
func (c *CAController) Reconcile(ctx context.Context, _ string) (after time.Duration, err error) {
	k, err := c.record()
	if err != nil || !k.Rotating() && k.Status.Active == "" {
		return 0, err
	}
	pending, err := c.keepOwn(ctx, k)
	switch {
	case pending:
		after = restartPoll
	case k.Rotating():
		after = pollInterval
	}
	if !k.Rotating() || !c.drives(k) {
		return after, err
	}
	advanced, failed := c.advance(ctx, k) // also to record what the rotation waits for, such as this head
	if after == 0 || advanced < after {
		after = advanced
	}
	return after, errors.Join(err, failed)
}

// keepOwn makes the CAs on this head's disk those of the record, publishes which it has, and starts the head again to
// use them when it may. pending: it may not yet.
func (c *CAController) keepOwn(ctx context.Context, k *trivet.Key) (pending bool, err error) {
	wanted := wantedCAs(&k.Status)
	if len(wanted) == 0 {
		return false, nil
	}
	if err = c.store(ctx, wanted); err == nil {
		err = c.confirm(ctx, k)
	}
	if err == nil {
		err = c.CAs.Use(wanted)
	}
	stored, used := c.CAs.Stored(), c.CAs.InUse()
	err = errors.Join(err, c.publish(ctx, func(h *trivet.Head) bool {
		changed := !slices.Equal(h.Status.StoredCAs, stored) || !slices.Equal(h.Status.CAs, used)
		h.Status.StoredCAs, h.Status.CAs = stored, used
		return changed
	}))
	if err != nil || slices.Equal(used, wanted) {
		return false, err
	}
	if !c.upgrading() && mayRestart(c.Head, wanted, c.members(), c.Healthy) {
		c.Log.Info("this head starts again to use other CAs", "cas", wanted)
		c.Restart()
	}
	return true, nil
}

// upgrading reports whether an upgrade has begun, which starts heads again, too. A rotation that has begun is first:
// an upgrade waits for it.
func (c *CAController) upgrading() bool {
	u, err := c.Tables.Upgrades.Get(trivet.UpgradeName)
	return err == nil && u.Begun()
}

// store fetches the CAs that are not on this head's disk.
func (c *CAController) store(ctx context.Context, wanted []string) error {
	for _, pin := range wanted {
		if !slices.Contains(c.CAs.Stored(), pin) {
			return c.CAs.Fetch(ctx, wanted...)
		}
	}
	return nil
}

// confirm fails where the record is another one than a quorum has: CAs that are dropped cannot be got back from a copy
// that is behind.
func (c *CAController) confirm(ctx context.Context, k *trivet.Key) error {
	if len(c.CAs.Stored()) <= len(wantedCAs(&k.Status)) {
		return nil
	}
	return c.rotation.confirm(ctx, k)
}

// advance takes the next step.
func (c *CAController) advance(ctx context.Context, k *trivet.Key) (after time.Duration, err error) {
	switch next := c.next(k); next {
	case create:
		if c.upgrading() {
			return pollInterval, c.step(ctx, create, func(_ *store.Tx, k *trivet.Key, _ string) error {
				k.Status.Reason = "waits until the upgrade of the heads has ended"
				return nil
			})
		}
		return again, c.create(ctx)
	case follow:
		return again, c.step(ctx, follow, c.follow)
	case activate:
		if left := time.Duration(k.Spec.Grace) - c.unchanged(k); left > 0 {
			return left, nil
		}
		return again, c.step(ctx, activate, c.activate)
	case drop:
		return again, c.step(ctx, drop, func(_ *store.Tx, k *trivet.Key, _ string) error {
			k.Status.Phase = trivet.KeyDropping
			return nil
		})
	case restore:
		return again, c.step(ctx, restore, c.restore)
	case finish:
		return again, c.step(ctx, finish, c.finish)
	}
	return pollInterval, c.wait(ctx)
}

// create creates the new CA. It is on this head's disk before the record names it.
func (c *CAController) create(ctx context.Context) (err error) {
	if !slices.Contains(c.CAs.Stored(), c.created) { // an attempt that failed may be repeated with its CA
		if c.created, err = c.CAs.Create(); err != nil {
			return err
		}
	}
	pin, stored, active := c.created, c.CAs.Stored(), c.CAs.InUse()[0]
	err = c.step(ctx, create, func(tx *store.Tx, k *trivet.Key, _ string) error {
		u, err := c.Tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		if err == nil && u.Begun() {
			return fmt.Errorf("%w: it waits for the upgrade of the heads", trivet.ErrConflict)
		}
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
		h, err := c.Tables.Heads.In(tx).Get(c.Head)
		if err != nil {
			return err
		}
		h.Status.StoredCAs = stored
		st := &k.Status
		st.Active, st.Next, st.Phase, st.Started = active, pin, trivet.KeyDistributing, c.now().UTC()
		return errors.Join(c.Tables.Heads.In(tx).Put(h),
			c.event(tx, k, trivet.ReasonKeyRotation, "CA "+shortPin(pin)+" is to replace "+shortPin(active)))
	})
	if err == nil {
		c.created = ""
	}
	return err
}

// follow lets clients learn of the new CA, which all heads trust.
func (c *CAController) follow(_ *store.Tx, k *trivet.Key, _ string) error {
	k.Status.Phase = trivet.KeyFollowing
	k.Status.Until = c.now().Add(time.Duration(k.Spec.Grace)).UTC()
	return nil
}

// activate makes the new CA the one that signs.
func (c *CAController) activate(tx *store.Tx, k *trivet.Key, _ string) error {
	st := &k.Status
	st.Old, st.Active, st.Next, st.Phase, st.Until = st.Active, st.Next, "", trivet.KeySigning, time.Time{}
	return c.event(tx, k, trivet.ReasonKeyActive,
		"all heads trust CA "+shortPin(st.Active)+", which signs from now on instead of "+shortPin(st.Old))
}

// restore goes on with the old CA where the new one is lost. What it has signed is lost as well, with the heads that
// had it.
func (c *CAController) restore(tx *store.Tx, k *trivet.Key, _ string) error {
	st := &k.Status
	lost := st.Active
	st.Active, st.Old, st.Phase, st.Rotations = st.Old, "", "", k.Spec.Rotations
	return c.event(tx, k, trivet.ReasonKeyRotated, "no head has CA "+shortPin(lost)+" any more; "+shortPin(st.Active)+
		" stays")
}

// finish completes the rotation.
func (c *CAController) finish(tx *store.Tx, k *trivet.Key, _ string) error {
	st := &k.Status
	old := st.Old
	st.Phase, st.Old, st.Rotations, st.Rotated = "", "", k.Spec.Rotations, c.now().UTC()
	return c.event(tx, k, trivet.ReasonKeyRotated, "all heads trust CA "+shortPin(st.Active)+" only; what CA "+
		shortPin(old)+" signed is refused")
}
