// Package provision claims a machine for each pending provision.
package provision

import (
	"context"
	"errors"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Fleet claims machines.
type Fleet interface {
	// Claim claims a machine for a pending provision, or writes why it cannot.
	Claim(ctx context.Context, provision string) error
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "provision",
	Reads:   []trivet.Kind{"Template", "Image", "Platform", "Network", "Site"},
	Writes:  []trivet.Kind{"Provision", "Machine", "Workflow", "Event", "Address"},
	Watches: []trivet.Kind{"Provision", "Machine", "Platform", "Network", "Image"},
	Input:   input,
	Workers: 4,
	Ranked:  true,
}

// input is the state of a provision or machine.
func input(r trivet.Record) any {
	switch r := r.(type) {
	case *trivet.Provision:
		return r.Status.State
	case *trivet.Machine:
		return r.Status.State
	}
	return nil
}

// pendingInterval is how often a pending provision is tried, besides when a machine becomes available.
const pendingInterval = time.Minute

// Controller implements [reconcile.Controller]. Its keys are full names of provisions.
type Controller struct {
	fleet  Fleet
	tables *state.Tables
}

// New returns the controller.
func New(f Fleet, tables *state.Tables) *Controller { return &Controller{f, tables} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.tables.Provisions.Names() }

// Affected implements [reconcile.Controller]: the provision, or all pending ones when a machine becomes available or
// what machines share changes, which may have been at fault.
func (c *Controller) Affected(e *store.Event) []string {
	switch e.Kind {
	case "Provision":
		return []string{e.Name}
	case "Platform", "Network", "Image":
		return c.pending()
	}
	now, ok := e.Record().(*trivet.Machine)
	if !ok || now.Status.State != trivet.MachineAvailable || now.Spec.Cordoned {
		return nil
	}
	if was, ok := e.Old().(*trivet.Machine); ok && was.Status.State == now.Status.State &&
		was.Generation == now.Generation {
		return nil
	}
	return c.pending()
}

func (c *Controller) pending() (names []string) {
	for _, p := range c.tables.Provisions.SharedBy(state.ByState, string(trivet.ProvisionPending)) {
		names = append(names, p.FullName())
	}
	return names
}

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	err = c.fleet.Claim(ctx, name)
	if errors.Is(err, trivet.ErrConflict) {
		return time.Millisecond, nil // the machine was claimed or deleted: choose again
	}
	if err != nil {
		return 0, err
	}
	if p, err := c.tables.Provisions.GetShared(name); err == nil && p.Status.State == trivet.ProvisionPending {
		return pendingInterval, nil
	}
	return 0, nil
}
