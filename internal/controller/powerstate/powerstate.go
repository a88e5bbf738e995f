// Package powerstate reads the power state of machines from their BMCs, slowly, so that their records say what is true
// also where something else than Trivet has switched a machine. It sends no command.
package powerstate

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Fleet is the transition of a machine whose power was read.
type Fleet interface {
	// ObservePower records what the BMC of a machine, as it was read, reports, or why it does not; nothing is written
	// where the record has that.
	ObservePower(ctx context.Context, m *trivet.Machine, power string, cause error) error
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "powerstate",
	Writes:  []trivet.Kind{"Machine", "Event"},
	Watches: []trivet.Kind{"Machine"},
	Subject: "machine",
	Workers: 32, // each uses one BMC
}

// Config is what the controller needs.
type Config struct {
	Fleet  Fleet
	Tables *state.Tables
	// Read reads the power state of a machine, which has a BMC, within a bounded time.
	Read func(context.Context, *trivet.Machine) (string, error)
	// Rank returns how many heads go before this one for a machine; nil: none.
	Rank func(machine string) int
	Log  *slog.Logger // nothing is logged if nil
}

// Controller implements [reconcile.Controller]. Its keys are names of machines. Only the head that ranks first for a
// machine reads its BMC. Two heads that both take themselves for the first read it twice, which changes nothing.
type Controller struct {
	Config
	retries chan struct{} // a slot for each BMC that is read after it failed
	mu      sync.Mutex
	reads   map[string]*history           // guarded by mu; by machine
	reading map[string]context.CancelFunc // guarded by mu; by machine
}

// New returns the controller.
func New(cfg Config) *Controller {
	if cfg.Rank == nil {
		cfg.Rank = func(string) int { return 0 }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Controller{Config: cfg, retries: make(chan struct{}, maxRetries), reads: map[string]*history{},
		reading: map[string]context.CancelFunc{}}
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string {
	return c.Tables.Machines.Names()
}

// isFree reports whether a machine has a BMC that no command is to use. A command records the state itself.
func isFree(m *trivet.Machine) bool { return m.Spec.BMC != nil && m.Status.Intent == nil }

// Affected implements [reconcile.Controller]. A machine with another BMC is read at once, one whose power request has
// ended soon, as it may have been dropped half done, and others when their time comes. A command ends a read.
func (c *Controller) Affected(e *store.Event) []string {
	is, ok := e.Record().(*trivet.Machine)
	if !ok || !isFree(is) {
		c.endReading(e.Name)
	}
	was, _ := e.Old().(*trivet.Machine)
	switch {
	case !ok || was == nil || was.UID != is.UID || !sameBMC(was.Spec.BMC, is.Spec.BMC):
		return []string{e.Name}
	case was.Status.Intent != nil && is.Status.Intent == nil && c.soon(e.Name):
		return []string{e.Name}
	}
	return nil
}

func sameBMC(a, b *trivet.BMC) bool { return a == b || a != nil && b != nil && *a == *b }

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	m, err := c.Tables.Machines.GetShared(name)
	if err != nil {
		c.forget(name)
		return 0, nil
	}
	if first := c.Rank(name) == 0; !first || m.Spec.BMC == nil {
		c.forget(name)
		return c.leave(ctx, m, first)
	}
	if !isFree(m) {
		return c.period(), nil // its end queues the machine
	}
	wait, failed := c.due(m)
	if wait > 0 {
		return wait, nil
	}
	if failed {
		select {
		case c.retries <- struct{}{}:
			defer func() { <-c.retries }()
		default:
			return jitter(retryPause), nil
		}
	}
	power, cause, ok := c.read(ctx, m)
	if !ok {
		return c.period(), nil
	}
	after, certain := c.note(m, power, cause)
	if certain {
		if err := c.Fleet.ObservePower(ctx, m, power, cause); err != nil {
			c.Log.Debug("the power of a machine was not recorded", "machine", name, "error", err)
		}
	}
	return after, nil
}

// leave leaves a machine that this head does not read: to the head that ranks first, until that changes; one without a
// BMC for good, and without the error of a BMC that it had.
func (c *Controller) leave(ctx context.Context, m *trivet.Machine, first bool) (after time.Duration, err error) {
	if m.Spec.BMC != nil {
		return c.period(), nil
	}
	if first && m.Status.PowerError != nil {
		return 0, c.Fleet.ObservePower(ctx, m, "", nil)
	}
	return 0, nil
}

// read reads the state of a machine. It is not ok where a command needs the BMC, or the head stops.
func (c *Controller) read(ctx context.Context, m *trivet.Machine) (power string, cause error, ok bool) {
	reading, end := context.WithCancel(ctx)
	defer end()
	c.mu.Lock()
	c.reading[m.Name] = end
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.reading, m.Name)
	}()
	if now, err := c.Tables.Machines.GetShared(m.Name); err != nil || !isFree(now) { // it may have changed before this
		return "", nil, false
	}
	power, cause = c.Read(reading, m)
	return power, cause, reading.Err() == nil
}

// endReading ends a read of a machine's BMC.
func (c *Controller) endReading(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := c.reading[name]; end != nil {
		end()
	}
}
