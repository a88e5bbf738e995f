package collect

import (
	"context"
	"errors"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// A run that has ended and is not the last one of its machine is a former run: history, which no head holds in memory.
// The sweep of runs makes it that. So it also finds the runs that had ended before the heads knew of former ones, and
// the transaction that starts a run does not grow.

const (
	// keepHot is how long a run stays in memory after its end. Then all is written that follows it: the last lines of
	// the console, notifications, logs.
	keepHot = 10 * time.Minute
	// maxLogs bounds the logs whose runs one sweep looks up in the store.
	maxLogs = 5000
)

// isFormer reports whether a run is to become a former one, by this head's copy.
func (c *Controller) isFormer(w *trivet.Workflow, now time.Time) bool {
	return w.Status.State.Ended() && now.Sub(w.Status.Ended) >= keepHot && c.Tables.Workflows.CanRetire() &&
		!isCurrent(c.Tables.Machines.GetShared, w)
}

// isCurrent reports whether a run is the last one of its machine, or that cannot be read.
func isCurrent(get func(name string) (*trivet.Machine, error), w *trivet.Workflow) bool {
	m, err := get(w.Spec.Machine)
	if err != nil {
		return !errors.Is(err, trivet.ErrNotFound)
	}
	return m.UID == w.Spec.MachineUID && m.Status.Workflow == w.ShortName()
}

// retire makes a run a former one, where it still is to become that.
func (c *Controller) retire(ctx context.Context, name string) error {
	_, err := c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		w, err := c.Tables.Workflows.In(tx).Get(name)
		if err != nil {
			return err
		}
		if !w.Status.State.Ended() || isCurrent(c.Tables.Machines.In(tx).Get, w) {
			return nil
		}
		c.busy = true
		return c.Tables.Workflows.In(tx).Retire(name)
	})
	if errors.Is(err, trivet.ErrNotFound) { // another head has done it, or deleted the run
		return nil
	}
	return err
}

// formerRuns deletes former runs of provisions that are gone.
func (c *Controller) formerRuns(ctx context.Context, now time.Time) error {
	list, next, err := c.Tables.Workflows.FormerAfter(ctx, c.after[keyFormer], slice)
	if err != nil {
		return err
	}
	for _, w := range list {
		if !c.isUnused(w, now) {
			continue
		}
		if err := c.dropFormer(ctx, w.FullName(), now); err != nil {
			return err
		}
	}
	c.ended(keyFormer, next, next != "")
	return ctx.Err()
}

func (c *Controller) dropFormer(ctx context.Context, name string, now time.Time) error {
	_, err := c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		w, err := c.Tables.Workflows.In(tx).Former(name)
		if err != nil {
			return err
		}
		if !old(w, now) || exists(c.Tables.Provisions.In(tx).Get, provisionOf(w), w.Spec.ProvisionUID) {
			return nil
		}
		c.busy = true
		return c.Tables.Workflows.In(tx).DropFormer(name)
	})
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	return err
}
