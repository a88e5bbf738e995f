package power

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
)

// send carries out an intent, for as long as the machine's record has it.
func (c *Controller) send(ctx context.Context, m *trivet.Machine, intent trivet.PowerIntent) error {
	wanted, stop := c.whileWanted(ctx, m.Name, intent)
	defer stop()
	err := c.sendWhile(ctx, wanted, m, intent)
	if err != nil && errors.Is(context.Cause(wanted), trivet.ErrFenced) {
		return trivet.ErrFenced
	}
	return err
}

// sendWhile sends to the BMC while the intent is wanted. What the BMC did is recorded whether or not it still is.
func (c *Controller) sendWhile(ctx, wanted context.Context, m *trivet.Machine, intent trivet.PowerIntent) error {
	client, err := c.open(wanted, m)
	if err != nil {
		return err
	}
	defer client.Close()
	if intent.Want == "off" || intent.Want == "cycle" && !intent.Off {
		if err := client.SetPower(wanted, bmc.Off); err != nil {
			return err
		}
		c.logSent(m, intent, "off")
		if err := c.Fleet.RecordPower(ctx, m.Name, intent, "off"); err != nil {
			return err
		}
		if intent.Want == "off" {
			c.keepEvents(ctx, client, m, intent)
			return nil
		}
	}
	if err := client.SetNextBoot(wanted, bmc.Device(intent.Boot)); err != nil {
		return fmt.Errorf("set next boot: %w", err)
	}
	if err := client.SetPower(wanted, bmc.On); err != nil {
		return err
	}
	c.logSent(m, intent, "on")
	return c.Fleet.RecordPower(ctx, m.Name, intent, "on")
}

// logSent logs a power state that a machine's BMC has confirmed.
func (c *Controller) logSent(m *trivet.Machine, intent trivet.PowerIntent, power string) {
	args := []any{"machine", m.Name, "power", power, "want", intent.Want, "bmc", m.Spec.BMC.Address}
	if power == "on" {
		args = append(args, "boot", intent.Boot)
	}
	c.Log.Info("the BMC set the power", args...)
}

func (c *Controller) open(ctx context.Context, m *trivet.Machine) (bmc.Client, error) {
	cfg, err := c.Tables.BMC(m, c.Unseal)
	if err != nil {
		return nil, err
	}
	cfg.Commands = c.Commands
	return bmc.Open(ctx, cfg)
}
