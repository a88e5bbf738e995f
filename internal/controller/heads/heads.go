// Package heads promotes heads that have joined, removes those that are to be removed, and raises the version of the
// cluster.
package heads

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Membership takes the next step for one head.
type Membership interface {
	Reconcile(ctx context.Context, head string) (after time.Duration, err error)
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "heads",
	Reads:   []trivet.Kind{"Upgrade"},
	Writes:  []trivet.Kind{"Head", "Site", "Token"},
	Watches: []trivet.Kind{"Head"},
	Input:   func(r trivet.Record) any { return r.(*trivet.Head).Status.State },
	Workers: 1,
}

// Controller implements [reconcile.Controller]. Its keys are names of heads.
type Controller struct {
	Membership
	tables *state.Tables
}

// New returns the controller.
func New(m Membership, tables *state.Tables) *Controller { return &Controller{m, tables} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.tables.Heads.Names() }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string { return []string{e.Name} }
