// Package members creates and deletes the members of provisions with spec.count, until there are as many.
package members

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Fleet changes members.
type Fleet interface {
	// SettleMembers creates or deletes some members of a provision. more: there is more to do.
	SettleMembers(ctx context.Context, name string) (more bool, err error)
}

// Declaration is what the controller reads and writes. Members that are deleted are released from their machines.
var Declaration = reconcile.Declaration{
	Name:    "members",
	Reads:   []trivet.Kind{"Site"},
	Writes:  []trivet.Kind{"Provision", "Machine", "Workflow", "Event", "Address"},
	Watches: []trivet.Kind{"Provision"},
	Input:   input,
	Workers: 2,
	Ranked:  true,
}

// input is how many members a provision has in each state.
func input(r trivet.Record) any {
	if p, ok := r.(*trivet.Provision); ok {
		return p.Status.Members
	}
	return nil
}

// Controller implements [reconcile.Controller]. Its keys are the full names of provisions with spec.count, also of
// those that were deleted.
type Controller struct {
	fleet  Fleet
	tables *state.Tables
}

// New returns the controller.
func New(f Fleet, tables *state.Tables) *Controller { return &Controller{fleet: f, tables: tables} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return slices.Collect(c.tables.Parents()) }

// Affected implements [reconcile.Controller]: a provision whose members are to be created or deleted. Whatever changes
// a member changes its counts.
func (c *Controller) Affected(e *store.Event) []string {
	is, _ := e.Record().(*trivet.Provision)
	was, _ := e.Old().(*trivet.Provision)
	switch {
	case is == nil && was != nil && was.Spec.Count != nil:
		return []string{was.FullName()}
	case is == nil || is.Spec.Count == nil:
		return nil
	case was == nil || was.UID != is.UID || was.Generation != is.Generation ||
		provision.PlanMembers(&is.Spec, is.Status.Members) != provision.Plan{}:
		return []string{is.FullName()}
	}
	return nil
}

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, key string) (after time.Duration, err error) {
	more, err := c.fleet.SettleMembers(ctx, key)
	if more && err == nil || errors.Is(err, trivet.ErrConflict) {
		return time.Millisecond, nil
	}
	return 0, err
}
