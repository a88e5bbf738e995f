package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/fleet"
)

// powers tells BMCs what was written as intent. A BMC cannot refuse a late word, so one head at a time holds an intent and
// sends nothing after its hold, states are set and never toggled, and a cycle sees the machine off first.
//
// Reads: machines, secrets. Writes: machines and workflows, by fleet's Take, SeenOff, Powered and PowerFailed.
type powers struct {
	fleet  *fleet.Fleet
	unseal Unseal
}

// Unseal opens one value of a secret.
type Unseal func(secret *trivet.Secret, key string) (string, error)

func (p *powers) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	m, err := p.fleet.Machines.Get(name)
	if err != nil || m.Status.Intent == nil || m.Spec.BMC == nil {
		return 0, nil
	}
	intent, wait, err := p.fleet.Take(ctx, name, *m.Status.Intent)
	if err != nil || wait > 0 || intent.Head == "" {
		return wait, err
	}
	held, cancel := context.WithDeadline(ctx, intent.Held) // nothing is sent after it
	defer cancel()
	err = p.act(held, m, intent)
	if err == nil || time.Now().Before(intent.Until) {
		return 0, err // an error comes again after the queue's backoff
	}
	return 0, p.fleet.PowerFailed(ctx, name, intent, fmt.Errorf("BMC %s: %w", m.Spec.BMC.Address, err))
}

func (p *powers) act(ctx context.Context, m *trivet.Machine, intent trivet.PowerIntent) error {
	client, err := p.open(ctx, m)
	if err != nil {
		return err
	}
	defer client.Close()
	if intent.Want == "off" || intent.Want == "cycle" && !intent.Off {
		if err := client.SetPower(ctx, bmc.Off); err != nil {
			return err
		}
		if intent.Want == "off" {
			return p.fleet.Powered(ctx, m.Name, intent, "off")
		}
		if err := p.fleet.SeenOff(ctx, m.Name, intent); err != nil {
			return err
		}
		intent.Off = true
	}
	if err := client.SetNextBoot(ctx, bmc.Device(intent.Boot)); err != nil {
		return fmt.Errorf("set next boot: %w", err)
	}
	if err := client.SetPower(ctx, bmc.On); err != nil {
		return err
	}
	return p.fleet.Powered(ctx, m.Name, intent, "on")
}

func (p *powers) open(ctx context.Context, m *trivet.Machine) (bmc.Client, error) {
	secret, err := p.fleet.Secrets.Get(m.Spec.BMC.Secret)
	if err != nil {
		return nil, err
	}
	user, err := p.unseal(secret, "user")
	if err != nil {
		return nil, err
	}
	password, err := p.unseal(secret, "password")
	if err != nil {
		return nil, err
	}
	return bmc.Open(ctx, bmc.Config{
		Protocol: m.Spec.BMC.Protocol, Address: m.Spec.BMC.Address, User: user, Password: password, Insecure: m.Spec.BMC.Insecure,
		UEFI: m.Status.Inventory != nil && m.Status.Inventory.Firmware == "uefi",
	})
}
