package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Accept makes a discovered or quarantined machine available.
func (f *Fleet) Accept(ctx context.Context, machine string) error {
	return f.onMachine(ctx, "accept", machine, func(t *transition) error {
		switch t.machine.Status.State {
		case trivet.MachineAvailable:
			return errUnchanged
		case trivet.MachineDiscovered, trivet.MachineQuarantined, "":
			t.makeAvailable()
			t.event(trivet.ReasonAccepted, "accepted by the operator")
			return nil
		default:
			return fmt.Errorf("%w: the machine is %s", trivet.ErrConflict, t.machine.Status.State)
		}
	})
}

// Quarantine keeps a machine out of placement, for a reason. A run on it is cancelled.
func (f *Fleet) Quarantine(ctx context.Context, machine, reason string) error {
	return f.onMachine(ctx, "quarantine", machine, func(t *transition) error {
		if t.active && t.run != nil {
			t.run.Cancel("the machine was quarantined: " + reason)
			if err := f.finish(t); err != nil {
				return err
			}
			t.active = false
		}
		t.quarantine(reason)
		return nil
	})
}

// Release makes the machine of a provision that is being deleted available: its run is cancelled, its agent refused.
// It is part of the transaction that deletes the provision.
func (f *Fleet) Release(tx *store.Tx, p *trivet.Provision) error {
	if p.Status.Machine == "" {
		return nil
	}
	t, err := f.load(tx, p.Status.Machine)
	if errors.Is(err, trivet.ErrNotFound) ||
		err == nil && (t.machine.UID != p.Status.MachineUID || t.machine.Status.Provision != p.Name) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.active && t.run != nil {
		t.run.Cancel("the provision was deleted")
		t.events, t.active = append(t.events, t.run.Events...), false
		t.run.Events = nil
	}
	t.raiseEpoch()
	t.makeAvailable()
	t.event(trivet.ReasonReleased, "provision %s was deleted", p.Name)
	return f.save(t)
}
