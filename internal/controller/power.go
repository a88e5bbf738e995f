package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	mu     sync.Mutex
	seen   map[string]sight // guarded by mu; by machine
}

// sight is an intent as this head saw it last. Clocks differ, so what another head wrote is timed from when this one saw it.
type sight struct {
	intent trivet.PowerIntent
	since  time.Time // that the intent is known
	held   time.Time // that its hold is known
}

// A head that speaks with a BMC holds the machine's intent for intentHold at a time. Another one takes it over intentRest after
// that: a BMC cannot refuse the last word of a head that died or was cut off.
const (
	intentHold = 20 * time.Second
	intentRest = 5 * time.Second
)

// Unseal opens one value of a secret.
type Unseal func(secret *trivet.Secret, key string) (string, error)

func (p *powers) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	m, err := p.fleet.Machines.Get(name)
	if err != nil {
		p.forget(name)
		return 0, nil
	}
	if m.Status.Intent == nil || m.Spec.BMC == nil {
		p.forget(name)
		if m.Status.PowerHead == p.fleet.Self() { // a machine has one turn at a time: nothing is being said now
			err = p.fleet.Quiet(ctx, name)
		}
		return 0, err
	}
	s := p.look(name, *m.Status.Intent)
	if h := s.intent.Head; h != "" && h != p.fleet.Self() {
		if rest := intentHold + intentRest - time.Since(s.held); rest > 0 {
			return rest, nil
		}
	}
	hold := min(intentHold, fleet.IntentLife-time.Since(s.since))
	held, cancel := context.WithTimeout(ctx, hold) // nothing is sent after it
	defer cancel()
	intent, err := p.fleet.Take(ctx, name, s.intent, hold)
	if err != nil || intent.Head == "" {
		return 0, err
	}
	err = p.act(held, m, intent)
	if errors.Is(err, trivet.ErrFenced) { // what is wanted has changed, and the machine has its next turn by that
		return 0, nil
	}
	if err == nil || time.Since(s.since) < fleet.IntentLife {
		return 0, err // an error comes again after the queue's backoff
	}
	return 0, p.fleet.PowerFailed(ctx, name, intent, fmt.Errorf("BMC %s: %w", m.Spec.BMC.Address, err))
}

// look notes what the machine's intent is now.
func (p *powers) look(machine string, intent trivet.PowerIntent) sight {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s, ok := p.seen[machine]
	if !ok || !fleet.SameIntent(s.intent, intent) {
		s = sight{since: now, held: now}
	} else if s.intent.Head != intent.Head || !s.intent.Held.Equal(intent.Held) {
		s.held = now
	}
	s.intent = intent
	p.seen[machine] = s
	return s
}

func (p *powers) forget(machine string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, machine)
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
