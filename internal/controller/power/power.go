// Package power sends to BMCs what is written as a machine's power intent.
package power

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Fleet is the transitions of a power intent.
type Fleet interface {
	AcquireIntent(ctx context.Context, machine string, intent trivet.PowerIntent,
		hold time.Duration) (trivet.PowerIntent, error)
	RecordPower(ctx context.Context, machine string, intent trivet.PowerIntent, power string) error
	RecordPowerFailure(ctx context.Context, machine string, intent trivet.PowerIntent, cause error) error
	ReleaseBMC(ctx context.Context, machine string) error
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "power",
	Reads:   []trivet.Kind{"Secret", "Site"},
	Writes:  []trivet.Kind{"Machine", "Workflow", "Event"},
	Watches: []trivet.Kind{"Machine"},
	Input:   input,
	Workers: 16,
	Ranked:  true,
}

// input is a machine's intent, whichever head holds it.
func input(r trivet.Record) any {
	type intent struct {
		want  string
		until int64
	}
	if m := r.(*trivet.Machine); m.Status.Intent != nil {
		return intent{m.Status.Intent.Want, m.Status.Intent.Until.UnixNano()}
	}
	return nil
}

// A head that uses a BMC holds the machine's intent for intentHold at a time. Another head acquires it intentRest
// after that: a BMC cannot refuse the last command of a head that died or was cut off.
const (
	intentHold = 20 * time.Second
	intentRest = 5 * time.Second
)

// Config is what the controller needs.
type Config struct {
	Fleet  Fleet
	Tables *state.Tables
	Head   string // the name of this head
	// Unseal returns one value of a secret.
	Unseal func(secret *trivet.Secret, key string) (string, error)
}

// Controller implements [reconcile.Controller]. Its keys are names of machines. A BMC cannot refuse a late command.
// So one head at a time holds an intent and sends nothing after its hold, states are set and never toggled, and a
// cycle verifies the machine off before it is powered on.
type Controller struct {
	Config
	mu      sync.Mutex
	intents map[string]knownIntent // guarded by mu; by machine
}

// knownIntent is an intent as this head read it last. Clocks differ, so what another head wrote is timed from when
// this one read it.
type knownIntent struct {
	intent trivet.PowerIntent
	since  time.Time // when the intent was first read
	held   time.Time // when its hold was first read
}

// New returns the controller.
func New(cfg Config) *Controller { return &Controller{Config: cfg, intents: map[string]knownIntent{}} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.Tables.Machines.Names() }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string { return []string{e.Name} }

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	m, err := c.Tables.Machines.Get(name)
	if err != nil {
		c.forget(name)
		return 0, nil
	}
	if m.Status.Intent == nil || m.Spec.BMC == nil {
		c.forget(name)
		if m.Status.PowerHead == c.Head { // a key is processed by one worker at a time: nothing is being sent now
			err = c.Fleet.ReleaseBMC(ctx, name)
		}
		return 0, err
	}
	known := c.note(name, *m.Status.Intent)
	if holder := known.intent.Head; holder != "" && holder != c.Head {
		if rest := intentHold + intentRest - time.Since(known.held); rest > 0 {
			return rest, nil
		}
	}
	return 0, c.execute(ctx, m, known)
}

// execute acquires an intent, and carries it out while it is held.
func (c *Controller) execute(ctx context.Context, m *trivet.Machine, known knownIntent) error {
	hold := min(intentHold, workflow.IntentTimeout-time.Since(known.since))
	held, cancel := context.WithTimeout(ctx, hold) // nothing is sent after it
	defer cancel()
	intent, err := c.Fleet.AcquireIntent(ctx, m.Name, known.intent, hold)
	if err != nil || intent.Head == "" {
		return err
	}
	err = c.send(held, m, intent)
	if errors.Is(err, trivet.ErrFenced) { // the intent has changed, which queues the machine again
		return nil
	}
	if err == nil || time.Since(known.since) < workflow.IntentTimeout {
		return err // an error is retried with backoff
	}
	return c.Fleet.RecordPowerFailure(ctx, m.Name, intent, fmt.Errorf("BMC %s: %w", m.Spec.BMC.Address, err))
}

// note records what the machine's intent is now.
func (c *Controller) note(machine string, intent trivet.PowerIntent) knownIntent {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	k, ok := c.intents[machine]
	if !ok || !workflow.SameIntent(k.intent, intent) {
		k = knownIntent{since: now, held: now}
	} else if k.intent.Head != intent.Head || !k.intent.Held.Equal(intent.Held) {
		k.held = now
	}
	k.intent = intent
	c.intents[machine] = k
	return k
}

func (c *Controller) forget(machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.intents, machine)
}
