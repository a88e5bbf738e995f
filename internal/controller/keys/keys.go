// Package keys rotates the keys that are rings, of the values of the store, of secrets and of boot tokens (keys.go),
// the boot CA as one of them (bootca.go), and the CA (ca.go). Each head keeps its own keys as the record says, and
// publishes which it has. One head at a time takes the next step of the rotation, whose state is in the record: any
// other one continues (rotation.go). Two that do so at once do no harm: each step is decided by compare.
package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Ring is the keys of a name that this head has. What it returns is on the disk.
type Ring interface {
	IDs() []string                                  // the one that is in use first
	Create() (id string, err error)                 // adds a new key
	Fetch(ctx context.Context, ids ...string) error // adds keys of other heads
	Use(first string) error                         // makes a key the first one
	DropOthers(only string) error                   // drops all keys but one
}

// Contents is what the keys of a ring are used for.
type Contents interface {
	// Active returns the ID of the key in use where the record has none yet.
	Active() (id string, err error)
	// Activate makes a key the one in use, in the transaction that writes it into the record.
	Activate(tx *store.Tx, id string) error
	// Reseal encrypts a page of what is under other keys again, beginning after a place; empty: the first.
	Reseal(ctx context.Context, active, after string) (store.ResealPage, error)
	// EndReseal is called after a pass over all pages that found nothing, up to a revision.
	EndReseal(ctx context.Context, revision int64) error
	// Drops returns why a key must not be dropped: something that this head knows needs it.
	Drops(id string) error
}

// Declaration returns what the controller of a ring reads and writes.
func Declaration(name string) reconcile.Declaration {
	d := reconcile.Declaration{
		Name:    "keys-" + name,
		Writes:  []trivet.Kind{"Key", "Head", "Event"},
		Watches: []trivet.Kind{"Key", "Head"},
		Input:   func(r trivet.Record) any { return input(name, r) },
		Workers: 1,
	}
	if name == trivet.SealKey {
		d.Writes = append(d.Writes, "Secret")
	}
	return d
}

// input is what the steps of a rotation rest on.
func input(name string, r trivet.Record) any {
	switch r := r.(type) {
	case *trivet.Head:
		return strings.Join(r.Status.Keys(name), " ") + string(r.Status.State)
	case *trivet.Key:
		return string(r.Status.Phase) + r.Status.Next + strings.Join(r.Status.Former, " ")
	}
	return nil
}

// Config is what the controller of a ring needs.
type Config struct {
	Name     string // of the key
	Head     string
	Ring     Ring
	Contents Contents // nil: there are none to encrypt again; both keys are valid for the grace instead
	Former   Former   // of the boot CA only
	Tables   *state.Tables
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
}

// Controller rotates the keys of a ring. It implements [reconcile.Controller]; its key is the name of the record.
type Controller struct {
	Config
	rotation
	pass    pass
	created string // the key that this head created, where it is not known that the record names it
}

// New returns the controller.
func New(cfg Config) *Controller {
	c := &Controller{Config: cfg}
	decides := decide
	if cfg.Former != nil {
		decides = decideBootCA
	}
	c.rotation = newRotation(cfg.Name, cfg.Head, cfg.Tables, cfg.Rank, decides)
	return c
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration(c.Name) }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return []string{c.Name} }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(*store.Event) []string { return []string{c.Name} }

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, _ string) (after time.Duration, err error) {
	k, err := c.record()
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
	if err == nil && c.Former != nil {
		err = c.keepFormer(ctx, k)
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

// drop drops the keys that are not used any more. What is dropped cannot be got back from a copy that is behind, so a
// quorum confirms the record.
func (c *Controller) drop(ctx context.Context, k *trivet.Key) error {
	if !isSettled(&k.Status) || len(c.Ring.IDs()) == 1 {
		return nil
	}
	if err := c.confirm(ctx, k); err != nil {
		return fmt.Errorf("drop keys: %w", err)
	}
	for _, id := range c.Ring.IDs() {
		if id == k.Status.Active || c.Contents == nil {
			continue
		}
		if err := c.Contents.Drops(id); err != nil {
			return fmt.Errorf("drop key %s: %w", id, err)
		}
	}
	return c.Ring.DropOthers(k.Status.Active)
}

// isSettled reports whether nothing but the active key of a record is needed any more.
func isSettled(s *trivet.KeyStatus) bool {
	return s.Active != "" && (s.Phase == "" || s.Phase == trivet.KeyDropping)
}

// publish writes which keys this head has into its record.
func (c *Controller) publish(ctx context.Context) error {
	held := c.Ring.IDs()
	return c.rotation.publish(ctx, func(h *trivet.Head) bool {
		changed := !slices.Equal(h.Status.Keys(c.Name), held)
		h.Status.SetKeys(c.Name, held)
		return changed
	})
}
