package controller

import (
	"context"
	"errors"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// provisions gives pending provisions a machine.
//
// Reads: provisions, machines, templates, images, networks, addresses. Writes: by fleet's Claim: the machine, its workflow,
// the provision.
type provisions struct{ fleet *fleet.Fleet }

// pendingAgain is how often a provision without a machine looks again, besides when a machine becomes free.
const pendingAgain = time.Minute

func (p *provisions) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	err = p.fleet.Claim(ctx, name)
	if errors.Is(err, trivet.ErrConflict) {
		return time.Millisecond, nil // another provision took the machine: choose afresh
	}
	if err != nil {
		return 0, err
	}
	if v, err := p.fleet.Provisions.Get(name); err == nil && v.Status.State == trivet.ProvisionPending {
		return pendingAgain, nil
	}
	return 0, nil
}

// whenFree gives pending provisions a turn when a machine may be had that could not before.
func (p *provisions) whenFree(e *store.Event) []string {
	now, ok := e.Record().(*trivet.Machine)
	if !ok || now.Status.State != trivet.MachineAvailable || now.Spec.Cordoned {
		return nil
	}
	if was, ok := e.Old().(*trivet.Machine); ok && was.Status.State == now.Status.State && was.Generation == now.Generation {
		return nil
	}
	var names []string
	for _, v := range p.fleet.Provisions.SharedBy(state.ByState, string(trivet.ProvisionPending)) {
		names = append(names, v.Name)
	}
	return names
}
