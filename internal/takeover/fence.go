package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/wait"
)

// What is lost must be so at each of so many readings: one witness that starts again, or one ping that is lost, says
// nothing. And a BMC must report that the other head is off for longer than a power cycle takes.
const (
	samples         = 3
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

// fence powers another head off that is lost, and returns once it is known to be off. It does so once: a head that is
// on again afterwards was switched on by somebody.
func (k *Keeper) fence(ctx context.Context, p *pair) error {
	c, err := k.cfg.BMC(ctx, p.other)
	if err != nil {
		return err
	}
	defer c.Close()
	state, err := c.Power(ctx)
	if err != nil {
		return err
	}
	if state != bmc.Off && !k.off {
		if err := k.powerOff(ctx, c, p); err != nil {
			return err
		}
	}
	k.off = true
	for n := range readings {
		if err := pause(ctx, n); err != nil {
			return err
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

// maxFailed is how often a command is repeated whose outcome is not known.
const maxFailed = 3

// powerOff powers another head off, once it has been found lost several times. Where the outcome is not known, it is
// repeated some times, and the head is on then as somebody may have switched it on.
func (k *Keeper) powerOff(ctx context.Context, c bmc.Client, p *pair) error {
	for n := range samples {
		if err := pause(ctx, n); err != nil {
			return err
		}
		if err := k.checkLost(ctx, p); err != nil {
			return err
		}
	}
	k.cfg.Log.Warn("there is no quorum, and the other head does not respond: powering it off by its BMC to take over",
		"from", p.other.Name, "bmc", p.other.Spec.BMC.Address, "after", p.own.Spec.Takeover.After)
	ctx, cancel := context.WithTimeout(ctx, powerTimeout) // what was found must not be old when it is carried out
	defer cancel()
	if err := k.checkLost(ctx, p); err != nil {
		return err
	}
	err := c.SetPower(ctx, bmc.Off)
	if errors.Is(err, trivet.ErrUnknown) {
		k.failed++
	}
	k.off = err == nil || k.failed == maxFailed
	return err
}

// pause waits before each reading but the first.
func pause(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	if err := wait.Sleep(ctx, readingInterval); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	return nil
}
