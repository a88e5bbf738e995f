// Package power sends to BMCs what is written as a machine's power intent.
package power

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/faultinject"
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
	// NotePowerFailed records, while an intent is tried again, why it was not carried out yet.
	NotePowerFailed(ctx context.Context, machine string, intent trivet.PowerIntent, cause error) error
	// DropIntent drops one that failed for a cause, or that is too old to be carried out, where cause is nil.
	DropIntent(ctx context.Context, machine string, intent trivet.PowerIntent, cause error) error
	ReleaseBMC(ctx context.Context, machine string) error
	// KeepEventLog adds the event log of the machine's BMC to the failure of a run.
	KeepEventLog(ctx context.Context, run, uid, text string) error
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "power",
	Reads:   []trivet.Kind{"Secret", "Site"},
	Writes:  []trivet.Kind{"Machine", "Workflow", "Event", "Provision", "Address"},
	Watches: []trivet.Kind{"Machine"},
	Input:   input,
	Subject: "machine",
	Workers: 64, // each uses one BMC, for intentHold at most
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
	// Commands is the directory of the programs of protocol exec.
	Commands string
	Unseal   state.Unseal
	Log      *slog.Logger // nothing is logged if nil
	Metrics  *bmc.Metrics // nothing is counted if nil
}

// Controller implements [reconcile.Controller]. Its keys are names of machines. A BMC cannot refuse a late command.
// So one head at a time holds an intent and sends nothing after its hold, states are set and never toggled, and a
// cycle verifies the machine off before it is powered on.
type Controller struct {
	Config
	mu      sync.Mutex
	intents map[string]knownIntent // guarded by mu; by machine
	sending map[string]sending     // guarded by mu; by machine
}

// sending is an intent that this head carries out at this moment, or has carried out.
type sending struct {
	intent trivet.PowerIntent
	done   bool
	end    context.CancelCauseFunc
}

// endsWith reports whether the use of the BMC ends with what the machine's intent is now: while the intent is carried
// out, with any other and with none, and afterwards with the next one.
func (s sending) endsWith(now *trivet.PowerIntent) bool {
	if now == nil {
		return !s.done
	}
	return !workflow.SameIntent(*now, s.intent)
}

// knownIntent is an intent as this head read it last. Clocks differ, so what another head wrote is timed from when
// this one read it, by its monotonic clock.
type knownIntent struct {
	intent trivet.PowerIntent
	since  time.Time // when it was written; zero: before this head could see that, so it may be of any age
	held   time.Time // when its hold was first read
	failed error     // of this head's last attempt
	tries  int       // attempts of this head that failed
	noted  bool      // the record says why
}

// expired reports whether the intent is too old to be carried out: its machine may have changed since it was decided.
func (k knownIntent) expired() bool {
	return k.since.IsZero() || time.Since(k.since) >= workflow.IntentTimeout
}

// New returns the controller.
func New(cfg Config) *Controller {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Controller{Config: cfg, intents: map[string]knownIntent{}, sending: map[string]sending{}}
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return c.Tables.Machines.Names() }

// Holds implements [reconcile.Holder]: no other head uses the machine's BMC before this one has released it, or died.
func (c *Controller) Holds(machine string) bool {
	m, err := c.Tables.Machines.GetShared(machine)
	if err != nil {
		return false
	}
	intent := m.Status.Intent
	return m.Status.PowerHead == c.Head || intent != nil && intent.Head == c.Head
}

// Affected implements [reconcile.Controller]. The age of an intent counts from here: one that this head did not see
// being written, because it did not run or its change feed was interrupted, may be of any age.
func (c *Controller) Affected(e *store.Event) []string {
	was, _ := e.Old().(*trivet.Machine)
	if is, _ := e.Record().(*trivet.Machine); is != nil && was != nil && is.Status.Intent != nil &&
		(was.Status.Intent == nil || !workflow.SameIntent(*was.Status.Intent, *is.Status.Intent)) {
		c.note(is.Name, *is.Status.Intent, time.Now())
	}
	c.endSending(e.Name)
	return []string{e.Name}
}

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
	known := c.note(name, *m.Status.Intent, time.Time{})
	if holder := known.intent.Head; holder != "" && holder != c.Head && !faultinject.BMCShared {
		if rest := intentHold + intentRest - time.Since(known.held); rest > 0 {
			return rest, nil
		}
	}
	if known.expired() {
		if err := c.Fleet.DropIntent(ctx, name, known.intent, known.failed); err != nil {
			return 0, err
		}
		if m, known = c.replaced(name, known.intent); known.since.IsZero() {
			return 0, nil
		}
	}
	return 0, c.execute(ctx, m, known)
}

// replaced returns the intent that was decided in the place of one that was dropped. It is carried out at once: a
// machine whose BMC had to wait for those of others would otherwise wait again behind all of them.
func (c *Controller) replaced(name string, dropped trivet.PowerIntent) (*trivet.Machine, knownIntent) {
	m, err := c.Tables.Machines.Get(name)
	if err != nil || m.Status.Intent == nil || m.Spec.BMC == nil || workflow.SameIntent(*m.Status.Intent, dropped) ||
		m.Status.Intent.Head != "" {
		return nil, knownIntent{}
	}
	return m, c.note(name, *m.Status.Intent, time.Now())
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
	if err != nil {
		c.Metrics.Failed("power", err)
		err = fmt.Errorf("BMC %s: %w", m.Spec.BMC.Address, err)
		if c.fail(m.Name, intent, err) && ctx.Err() == nil {
			if noted := c.Fleet.NotePowerFailed(ctx, m.Name, intent, err); noted != nil {
				c.Log.Debug("the error of a BMC was not recorded", "machine", m.Name, "error", noted)
			}
		}
	}
	return err // an error is retried with backoff until the intent expires
}

// note records what the machine's intent is now, and returns what is known of it. written is when a new one was
// written; zero: it is not known.
func (c *Controller) note(machine string, intent trivet.PowerIntent, written time.Time) knownIntent {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	k, ok := c.intents[machine]
	if !ok || !workflow.SameIntent(k.intent, intent) {
		k = knownIntent{held: now}
	} else if k.intent.Head != intent.Head || !k.intent.Held.Equal(intent.Held) {
		k.held = now
	}
	if k.since.IsZero() {
		k.since = written
	}
	k.intent = intent
	c.intents[machine] = k
	return k
}

// notedTries is how many attempts of an intent fail before its machine's record says why: many BMCs fail once.
const notedTries = 3

// fail records the error of an attempt, and reports whether the machine's record is to say it: once for each intent,
// after some attempts, or at once where the next one can only fail as well.
func (c *Controller) fail(machine string, intent trivet.PowerIntent, err error) (note bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.intents[machine]
	if !ok || !workflow.SameIntent(k.intent, intent) {
		return false
	}
	k.failed = err
	k.tries++
	refused := errors.Is(err, trivet.ErrUnauthenticated) || errors.Is(err, trivet.ErrForbidden) ||
		errors.Is(err, trivet.ErrInvalid)
	note = !k.noted && (refused || k.tries >= notedTries)
	k.noted = k.noted || note
	c.intents[machine] = k
	return note
}

// whileWanted returns a context that ends with ErrFenced as soon as the machine's record no longer has an intent: a BMC
// may take long to answer, and meanwhile an agent may have come up and be at work. stop must be called.
func (c *Controller) whileWanted(ctx context.Context, machine string, intent trivet.PowerIntent) (
	wanted context.Context, stop func()) {
	return c.using(ctx, machine, sending{intent: intent})
}

// untilNext returns a context that ends with ErrFenced when the machine has another intent than one that was carried
// out. stop must be called.
func (c *Controller) untilNext(ctx context.Context, machine string, done trivet.PowerIntent) (
	free context.Context, stop func()) {
	return c.using(ctx, machine, sending{intent: done, done: true})
}

func (c *Controller) using(ctx context.Context, machine string, s sending) (context.Context, func()) {
	wanted, end := context.WithCancelCause(ctx)
	s.end = end
	c.mu.Lock()
	c.sending[machine] = s
	c.mu.Unlock()
	c.endSending(machine) // it may have changed before this
	return wanted, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.sending, machine)
		end(nil)
	}
}

// endSending ends the use of a machine's BMC where its intent has changed.
func (c *Controller) endSending(machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sending[machine]
	if !ok {
		return
	}
	m, err := c.Tables.Machines.Get(machine)
	if err != nil || s.endsWith(m.Status.Intent) {
		s.end(trivet.ErrFenced)
	}
}

func (c *Controller) forget(machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.intents, machine)
}
