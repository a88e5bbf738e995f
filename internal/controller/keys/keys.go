// Package keys rotates the key that the values of the store are encrypted with. Each head keeps its own keys as the
// record says, and publishes which it has. One head at a time takes the next step of the rotation, whose state is in
// the record: any other one continues. Two that do so at once do no harm: each step is decided by compare.
package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Ring is the keys of the store that this head has. What it returns is on the disk.
type Ring interface {
	IDs() []string                                  // the one that new values are written with first
	Create() (id string, err error)                 // adds a new key
	Fetch(ctx context.Context, ids ...string) error // adds keys of other heads
	Use(first string) error                         // makes a key the first one
	DropOthers(only string) error                   // drops all keys but one
}

// Member is this head's member of the store.
type Member interface {
	Compact(ctx context.Context, revision int64) error
	Commit()
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "keys",
	Writes:  []trivet.Kind{"Key", "Head", "Event"},
	Watches: []trivet.Kind{"Key", "Head"},
	Input:   input,
	Workers: 1,
}

// input is what the steps of a rotation rest on.
func input(r trivet.Record) any {
	switch r := r.(type) {
	case *trivet.Head:
		return strings.Join(r.Status.StoreKeys, " ") + string(r.Status.State)
	case *trivet.Key:
		return string(r.Status.Phase) + r.Status.Next
	}
	return nil
}

// Config is what the controller needs.
type Config struct {
	Head   string
	Ring   Ring
	Member Member
	Tables *state.Tables
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
}

// Controller implements [reconcile.Controller]. Its key is the name of the record.
type Controller struct {
	Config
	now  func() time.Time
	pass pass

	seen      int64     // the revision of the record that was seen last
	seenSince time.Time // when it was first seen
	created   string    // the key that this head created, where it is not known that the record names it
}

// New returns the controller.
func New(cfg Config) *Controller { return &Controller{Config: cfg, now: time.Now} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return []string{trivet.StoreKey} }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(*store.Event) []string { return []string{trivet.StoreKey} }

const (
	// pollInterval is how often a head checks a rotation that waits, or that another head drives.
	pollInterval = 5 * time.Second
	// stallTime is how long a head leaves a rotation to each head that ranks before it, while its record does not
	// change.
	stallTime = 30 * time.Second
)

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	k, err := c.Tables.Keys.Get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		k, err = &trivet.Key{Meta: trivet.Meta{Name: name}}, nil
	}
	if err != nil {
		return 0, err
	}
	err = c.keepOwn(ctx, k)
	switch {
	case !k.Rotating():
		return 0, err
	case !c.drives(k):
		return pollInterval, err
	}
	after, failed := c.advance(ctx, k) // also to record what the rotation waits for, such as this head
	return after, errors.Join(err, failed)
}

// drives reports whether this head takes the next step: it ranks first, or those before it have not done so for a
// while.
func (c *Controller) drives(k *trivet.Key) bool {
	if k.Revision != c.seen {
		c.seen, c.seenSince = k.Revision, c.now()
	}
	return c.now().Sub(c.seenSince) >= time.Duration(c.Rank(k.Name))*stallTime
}

// keepOwn makes this head's keys those of the record, and publishes which it has: also where it cannot get one, since
// the rotation must not count on a key that was lost.
func (c *Controller) keepOwn(ctx context.Context, k *trivet.Key) error {
	err := c.get(ctx, k)
	if err == nil && k.Status.Active != "" {
		err = c.Ring.Use(k.Status.Active)
	}
	if err == nil {
		err = c.drop(ctx, k)
	}
	return errors.Join(err, c.publish(ctx))
}

// get fetches the keys of the record that this head does not have.
func (c *Controller) get(ctx context.Context, k *trivet.Key) error {
	held := c.Ring.IDs()
	missing := slices.DeleteFunc([]string{k.Status.Active, k.Status.Next}, func(id string) bool {
		return id == "" || slices.Contains(held, id)
	})
	if len(missing) == 0 {
		return nil
	}
	return c.Ring.Fetch(ctx, missing...)
}

// drop drops the keys that are not used any more: none of the values of this head's copy, nor of what its member has on
// the disk, is encrypted with them. What is dropped cannot be got back from a copy that is behind, so a quorum confirms
// the record.
func (c *Controller) drop(ctx context.Context, k *trivet.Key) error {
	idle := k.Status.Phase == "" || k.Status.Phase == trivet.KeyDropping
	if k.Status.Active == "" || !idle || len(c.Ring.IDs()) == 1 {
		return nil
	}
	if err := c.confirm(ctx, k); err != nil {
		return fmt.Errorf("drop keys: %w", err)
	}
	for _, text := range c.Ring.IDs() {
		id, err := keyring.ParseID(text)
		if err != nil {
			return err
		}
		if n := c.Tables.Store.ValuesUnder(id); text != k.Status.Active && n > 0 {
			return fmt.Errorf("drop key %s: %w: %d values are encrypted with it", text, trivet.ErrConflict, n)
		}
	}
	c.Member.Commit()
	return c.Ring.DropOthers(k.Status.Active)
}

// confirm fails where the record is another one than a quorum has. Afterwards this head's copy has what it had then.
func (c *Controller) confirm(ctx context.Context, k *trivet.Key) error {
	return c.update(ctx, func(tx *store.Tx) error {
		now, err := c.Tables.Keys.In(tx).Get(k.Name)
		if err == nil && (now.Status.Active != k.Status.Active || now.Status.Phase != k.Status.Phase) {
			err = fmt.Errorf("%w: the record has changed", trivet.ErrConflict)
		}
		return err
	})
}

// publish writes which keys this head has into its record.
func (c *Controller) publish(ctx context.Context) error {
	held := c.Ring.IDs()
	h, err := c.Tables.Heads.GetShared(c.Head)
	if err != nil || slices.Equal(h.Status.StoreKeys, held) { // a head that has no record yet writes it with them
		return nil
	}
	return c.update(ctx, func(tx *store.Tx) error {
		h, err := c.Tables.Heads.In(tx).Get(c.Head)
		if err != nil {
			return err
		}
		h.Status.StoreKeys = held
		return c.Tables.Heads.In(tx).Put(h)
	})
}
