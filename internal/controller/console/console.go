// Package console collects what machines write to their serial consoles during their runs: into the logs of the run,
// and the last lines into its failure. A console that is not available never affects the run.
package console

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Fleet is the transition of a failure.
type Fleet interface {
	// KeepConsole adds the last lines of the console to the failure of a run.
	KeepConsole(ctx context.Context, run, uid, text string) error
}

// Consoles are the consoles of all machines.
type Consoles interface {
	Open(ctx context.Context, machine string, req trivet.ConsoleRequest) (trivet.ConsoleSession, error)
	Read(ctx context.Context, machine, session string, from int64) (trivet.ConsoleText, error)
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "console",
	Reads:   []trivet.Kind{"Machine"},
	Writes:  []trivet.Kind{"Workflow"},
	Watches: []trivet.Kind{"Workflow"},
	Input:   func(r trivet.Record) any { return r.(*trivet.Workflow).Status.State },
	Workers: 4,
}

// recheck is how often the first head of a run makes sure that it is still the first.
const recheck = 15 * time.Second

// Config is what the controller needs.
type Config struct {
	Fleet    Fleet
	Consoles Consoles
	Logs     *replica.Logs
	Tables   *state.Tables
	// Rank returns how many heads go before this one for a run.
	Rank func(run string) int
}

// Controller implements [reconcile.Controller]. Its keys are full names of workflows. The first head of a run collects.
// Two heads that both take themselves for the first share the session and keep a log each.
type Controller struct {
	Config
	mu        sync.Mutex
	followers map[string]*follower // guarded by mu; by run
}

// New returns the controller.
func New(cfg Config) *Controller { return &Controller{Config: cfg, followers: map[string]*follower{}} }

// Close ends the collection of all runs, and writes what was collected.
func (c *Controller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.followers {
		f.stop()
	}
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller]. Of the runs that have ended, those are among them that are still collected.
func (c *Controller) Keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.Tables.Workflows.NotAtRest(), slices.Collect(maps.Keys(c.followers))...)
}

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string { return []string{e.Name} }

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	w, err := c.Tables.Workflows.GetShared(name)
	if errors.Is(err, trivet.ErrNotFound) {
		c.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if w.Status.State.Ended() {
		return 0, c.end(ctx, w)
	}
	m, err := c.Tables.Machines.GetShared(w.Spec.Machine)
	if err != nil || m.UID != w.Spec.MachineUID || m.Spec.BMC == nil || !m.Spec.BMC.Console ||
		w.Spec.Action(trivet.LogConsole) != nil { // of a template of an earlier version
		c.forget(name)
		return 0, nil
	}
	if c.Rank(name) > 0 {
		c.forget(name)
	} else {
		c.follow(w)
	}
	return recheck, nil
}

// follow begins to collect, where that was not begun.
func (c *Controller) follow(w *trivet.Workflow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followers[w.FullName()] == nil {
		c.followers[w.FullName()] = start(c.Consoles, c.Logs, w)
	}
}

// end keeps the last lines of a run that has failed.
func (c *Controller) end(ctx context.Context, w *trivet.Workflow) error {
	c.mu.Lock()
	f := c.followers[w.FullName()]
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	f.stop()
	if text := lastLines(f.tail); text != "" && w.Status.Failure != nil {
		if err := c.Fleet.KeepConsole(ctx, w.FullName(), w.UID, text); err != nil {
			return err
		}
	}
	c.forget(w.FullName())
	return nil
}

func (c *Controller) forget(run string) {
	c.mu.Lock()
	f := c.followers[run]
	delete(c.followers, run)
	c.mu.Unlock()
	if f != nil {
		f.stop()
	}
}
