// Package provision claims a machine for each provision that waits for one.
package provision

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Fleet claims machines.
type Fleet interface {
	// Claim claims a machine for a waiting provision, or writes why it cannot.
	Claim(ctx context.Context, provision string) error
	// Offer gives a machine to the first provision that waits for it.
	Offer(ctx context.Context, machine string) error
	// Recheck claims machines for a page of waiting provisions and returns the last of them; nil at the end.
	Recheck(ctx context.Context, after *trivet.Provision, page int) (last *trivet.Provision, err error)
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "provision",
	Reads:   []trivet.Kind{"Template", "Image", "Platform", "Network", "Site"},
	Writes:  []trivet.Kind{"Provision", "Machine", "Workflow", "Event", "Address"},
	Watches: []trivet.Kind{"Provision", "Machine", "Platform", "Network", "Image"},
	Input:   input,
	Workers: 4,
	Ranked:  true,
}

// input is what a provision waits for, and whether a machine can be claimed.
func input(r trivet.Record) any {
	switch r := r.(type) {
	case *trivet.Provision:
		return waiting{r.Waits(), r.Status.WaitsFor, provision.WantsSecond(r)}
	case *trivet.Machine:
		return placement.Free(r)
	}
	return nil
}

type waiting struct {
	machine bool
	other   string
	second  bool
}

// The keys are full names of provisions and, as names have no spaces, names of machines that became available after
// machineKey. recheckKey is all waiting provisions: they are rechecked page by page, in case that what woke them was
// lost.
const (
	machineKey      = "machine "
	recheckKey      = "all provisions"
	recheckInterval = time.Minute
	pageInterval    = 5 * time.Second
	pageSize        = 256
)

// Controller implements [reconcile.Controller]. A machine that becomes available is one decision, however many
// provisions wait.
type Controller struct {
	fleet  Fleet
	tables *state.Tables
	mu     sync.Mutex
	// guards following
	after *trivet.Provision // the last one that was rechecked; nil: begin
	begun int               // how often all were to be rechecked from the beginning
}

// New returns the controller.
func New(f Fleet, tables *state.Tables) *Controller { return &Controller{fleet: f, tables: tables} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string {
	c.restart()
	return []string{recheckKey}
}

// Affected implements [reconcile.Controller]: a provision that waits, a machine that became available, and what waits
// for something that machines share and that may be at fault no more.
func (c *Controller) Affected(e *store.Event) []string {
	switch is := e.Record().(type) {
	case *trivet.Provision:
		if was, ok := e.Old().(*trivet.Provision); (is.Waits() || provision.WantsSecond(is)) &&
			(!ok || was.Generation != is.Generation || was.Status.Paused != nil ||
				is.Status.WaitsFor == "" && input(was) != input(is)) {
			return []string{is.FullName()}
		}
	case *trivet.Machine:
		if was, ok := e.Old().(*trivet.Machine); placement.Free(is) && (!ok || !placement.Free(was) ||
			was.Generation != is.Generation || !maps.Equal(was.Labels, is.Labels)) {
			return []string{machineKey + is.Name}
		}
	}
	switch e.Kind {
	case "Image":
		return c.waitingFor("image " + trivet.ShortName(e.Name))
	case "Platform", "Network":
		if changed(e.Old(), e.Record()) {
			c.restart()
			return []string{recheckKey}
		}
	}
	return nil
}

// changed reports whether machines may be usable that were not before: a platform or network has another spec, or other
// failures.
func changed(was, is trivet.Record) bool {
	if was == nil || is == nil || was.Header().Generation != is.Header().Generation {
		return true
	}
	switch is := is.(type) {
	case *trivet.Platform:
		return workflow.AreMany(was.(*trivet.Platform).Status.Failures) && !workflow.AreMany(is.Status.Failures)
	case *trivet.Network:
		return workflow.AreMany(was.(*trivet.Network).Status.Failures) && !workflow.AreMany(is.Status.Failures)
	}
	return false
}

func (c *Controller) waitingFor(what string) (names []string) {
	for p := range c.tables.WaitingForFault(what) {
		names = append(names, p.FullName())
	}
	return names
}

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, key string) (after time.Duration, err error) {
	if key == recheckKey {
		return c.recheck(ctx)
	}
	if machine, ok := strings.CutPrefix(key, machineKey); ok {
		err = c.fleet.Offer(ctx, machine)
	} else {
		err = c.fleet.Claim(ctx, key)
	}
	if errors.Is(err, trivet.ErrConflict) {
		return time.Millisecond, nil // another provision or head was first: choose again
	}
	return 0, err
}

// recheck rechecks a page of the waiting provisions.
func (c *Controller) recheck(ctx context.Context) (time.Duration, error) {
	c.mu.Lock()
	after, begun := c.after, c.begun
	c.mu.Unlock()
	if after == nil {
		c.recheckRaces(ctx)
	}
	last, err := c.fleet.Recheck(ctx, after, pageSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun == c.begun {
		c.after = last
	}
	switch {
	case err != nil:
		return 0, err
	case c.after == nil && begun == c.begun:
		return recheckInterval, nil
	}
	return pageInterval, nil
}

// recheckRaces claims the second machines that provisions still want, as a head was killed before it had claimed them.
func (c *Controller) recheckRaces(ctx context.Context) {
	for _, p := range c.tables.Provisions.SharedBy(state.ByRace, state.WantsSecond) {
		_ = c.fleet.Claim(ctx, p.FullName()) // the next recheck repeats it
	}
}

// restart begins a recheck of all provisions.
func (c *Controller) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = nil
	c.begun++
}
