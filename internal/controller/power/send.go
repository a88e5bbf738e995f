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
		if err := c.Fleet.RecordPower(ctx, m.Name, intent, "off"); err != nil || intent.Want == "off" {
			return err
		}
	}
	if err := client.SetNextBoot(wanted, bmc.Device(intent.Boot)); err != nil {
		return fmt.Errorf("set next boot: %w", err)
	}
	if err := client.SetPower(wanted, bmc.On); err != nil {
		return err
	}
	return c.Fleet.RecordPower(ctx, m.Name, intent, "on")
}

func (c *Controller) open(ctx context.Context, m *trivet.Machine) (bmc.Client, error) {
	secret, err := c.Tables.Secrets.Get(trivet.Resolve("", m.Spec.BMC.Secret))
	if err != nil {
		return nil, err
	}
	user, err := c.Unseal(secret, "user")
	if err != nil {
		return nil, err
	}
	password, err := c.Unseal(secret, "password")
	if err != nil {
		return nil, err
	}
	return bmc.Open(ctx, bmc.Config{
		Protocol: m.Spec.BMC.Protocol, Command: m.Spec.BMC.Command, Commands: c.Commands,
		Address: m.Spec.BMC.Address, User: user, Password: password,
		Allows: secret.Spec.Allows, Insecure: secret.Spec.Insecure,
		UEFI: m.Status.Inventory != nil && m.Status.Inventory.Firmware == "uefi",
	})
}
