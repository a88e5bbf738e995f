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
	return f.onMachine(ctx, "accept", machine, func(c *change) error {
		switch c.machine.Status.State {
		case trivet.MachineAvailable:
			return errUnchanged
		case trivet.MachineDiscovered, trivet.MachineQuarantined, "":
			c.free()
			c.tell("Accepted", "accepted by the operator")
			return nil
		default:
			return fmt.Errorf("%w: the machine is %s", trivet.ErrConflict, c.machine.Status.State)
		}
	})
}

// Quarantine keeps a machine out of placement and says why. A run on it is cancelled.
func (f *Fleet) Quarantine(ctx context.Context, machine, reason string) error {
	return f.onMachine(ctx, "quarantine", machine, func(c *change) error {
		if c.running && c.run != nil {
			c.run.Cancel("the machine was quarantined: " + reason)
			if err := f.settle(c); err != nil {
				return err
			}
			c.running = false
		}
		c.quarantine(reason)
		return nil
	})
}

// Release takes the machine of a provision that is being deleted back: its run is cancelled, its agent refused. It is part
// of the transaction that deletes the provision.
func (f *Fleet) Release(tx *store.Tx, p *trivet.Provision) error {
	if p.Status.Machine == "" {
		return nil
	}
	c, err := f.read(tx, p.Status.Machine)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && c.machine.Status.Provision != p.Name {
		return nil
	}
	if err != nil {
		return err
	}
	if c.running && c.run != nil {
		c.run.Cancel("the provision was deleted")
		c.happened, c.running = append(c.happened, c.run.Happened...), false
		c.run.Happened = nil
	}
	raise(c.machine)
	c.free()
	c.tell("Released", "provision %s was deleted", p.Name)
	return f.write(c)
}
