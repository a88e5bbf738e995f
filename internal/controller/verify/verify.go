// Package verify asks the BMCs of machines that are unverified after a recovery for their power state: one that is off
// runs nothing, and becomes available. It sends no command.
package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Fleet is the transition of a machine that was found off.
type Fleet interface {
	Verify(ctx context.Context, machine, why string) error
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "verify",
	Reads:   []trivet.Kind{"Site"},
	Writes:  []trivet.Kind{"Machine", "Workflow", "Event"},
	Watches: []trivet.Kind{"Machine"},
	Input:   func(r trivet.Record) any { return asks(r.(*trivet.Machine)) },
	Workers: 16, // each uses one BMC
	Ranked:  true,
}

// interval is how often the BMC of a machine is asked that is on.
const interval = time.Minute

// Controller implements [reconcile.Controller]. Its keys are names of machines.
type Controller struct {
	fleet  Fleet
	tables *state.Tables
	power  func(ctx context.Context, m *trivet.Machine) (string, error)
}

// New returns the controller. power asks the BMC of a machine for its state.
func New(f Fleet, tables *state.Tables, power func(context.Context, *trivet.Machine) (string, error)) *Controller {
	return &Controller{f, tables, power}
}

// asks reports whether the BMC of a machine is asked.
func asks(m *trivet.Machine) bool {
	return m.Spec.BMC != nil && m.Status.Intent == nil && workflow.StateOf(&m.Status) == trivet.MachineUnverified
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.tables.Machines.Names() }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string {
	if m, ok := e.Record().(*trivet.Machine); !ok || !asks(m) {
		return nil
	}
	return []string{e.Name}
}

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	m, err := c.tables.Machines.GetShared(name)
	if err != nil || !asks(m) {
		return 0, nil
	}
	power, err := c.power(ctx, m)
	switch {
	case err != nil:
		return 0, fmt.Errorf("BMC %s: %w", m.Spec.BMC.Address, err)
	case power != trivet.PowerOff:
		return interval, nil
	}
	return 0, c.fleet.Verify(ctx, name, "its BMC reports it off")
}
