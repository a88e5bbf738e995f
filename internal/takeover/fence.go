package takeover

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/wait"
)

// power reads the power state of another head.
func (k *Keeper) power(ctx context.Context, h *trivet.Head) (bmc.State, error) {
	c, err := k.cfg.BMC(ctx, h)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Power(ctx)
}

// fence powers another head off. It returns once its BMC has reported twice that it is off: one that resets, or whose
// host is switched on again, does not.
func (k *Keeper) fence(ctx context.Context, h *trivet.Head) error {
	c, err := k.cfg.BMC(ctx, h)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetPower(ctx, bmc.Off); err != nil {
		return err
	}
	for range 2 {
		state, err := c.Power(ctx)
		if err != nil {
			return err
		}
		if state != bmc.Off {
			return fmt.Errorf("%w: it reports %s after it was powered off", trivet.ErrConflict, state)
		}
		if err := wait.Sleep(ctx, k.cfg.confirm); err != nil {
			return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		}
	}
	return nil
}
