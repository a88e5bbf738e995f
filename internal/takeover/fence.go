package takeover

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/wait"
)

// A BMC must report that the other head is off at each of so many readings, for longer than a power cycle takes.
const (
	readings        = 4
	readingInterval = 5 * time.Second
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

// fence powers another head off that is lost, and returns once it is known to be off. It does so once: a head that is on
// again afterwards was switched on by somebody.
func (k *Keeper) fence(ctx context.Context, p *pair) error {
	c, err := k.cfg.BMC(ctx, p.other)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Power(ctx); err != nil {
		return err
	}
	if err := k.checkLost(ctx, p); err != nil { // opening the BMC may have taken long
		return err
	}
	if !k.off {
		k.cfg.Log.Warn("there is no quorum, and the other head does not respond: powering it off by its BMC to take over",
			"from", p.other.Name, "bmc", p.other.Spec.BMC.Address, "after", p.own.Spec.Takeover.After)
		if err := powerOff(ctx, c); err != nil {
			return err
		}
		k.off = true
	}
	for n := range readings {
		if n > 0 {
			if err := wait.Sleep(ctx, readingInterval); err != nil {
				return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
			}
		}
		if err := k.checkLost(ctx, p); err != nil {
			return err
		}
		state, err := c.Power(ctx)
		if err != nil {
			return err
		}
		if state != bmc.Off {
			return fmt.Errorf("%w: it reports %s after it was powered off", trivet.ErrConflict, state)
		}
	}
	return nil
}

func powerOff(ctx context.Context, c bmc.Client) error {
	ctx, cancel := context.WithTimeout(ctx, powerTimeout)
	defer cancel()
	return c.SetPower(ctx, bmc.Off)
}
