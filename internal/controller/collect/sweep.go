package collect

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// runs deletes the ended runs of provisions that are gone.
func (c *Controller) runs(ctx context.Context, now time.Time) error {
	for _, w := range c.tables.Workflows.List() {
		if !w.Status.State.Ended() || now.Sub(w.Status.Ended) < keepRun {
			continue
		}
		if _, err := c.tables.Provisions.Get(w.Spec.Provision); !errors.Is(err, trivet.ErrNotFound) {
			continue
		}
		if m, err := c.tables.Machines.Get(w.Spec.Machine); err == nil && m.Status.Workflow == w.Name {
			continue
		}
		if err := c.delete(ctx, func(tx *store.Tx) error {
			return c.tables.Workflows.In(tx).Delete(w.Name)
		}); err != nil {
			return err
		}
	}
	return nil
}

// oldLogs removes this head's logs of runs that are gone, whichever head deleted them. A log is created after its
// run: a read that is newer than the list of logs shows the run of each.
func (c *Controller) oldLogs(ctx context.Context, now time.Time) error {
	names, err := c.logs.Workflows()
	names = slices.DeleteFunc(names, c.hasRun)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := c.tables.Store.Sync(ctx); err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if c.hasRun(name) {
			continue
		}
		written, err := c.logs.LastWritten(name)
		if err == nil && now.Sub(written) > keepLog {
			err = c.logs.Remove(name)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// hasRun reports whether this head's copy has a run, or cannot be read.
func (c *Controller) hasRun(name string) bool {
	_, err := c.tables.Workflows.GetShared(name)
	return !errors.Is(err, trivet.ErrNotFound)
}

// leases deletes expired leases.
func (c *Controller) leases(ctx context.Context, now time.Time) error {
	for _, a := range c.tables.Addresses.List() {
		if !c.isOld(a, now) {
			continue
		}
		err := c.delete(ctx, func(tx *store.Tx) error {
			a, err := c.tables.Addresses.In(tx).Get(a.Name)
			if err != nil || !c.isOld(a, now) {
				return err
			}
			return c.tables.Addresses.In(tx).Delete(a.Name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isOld reports whether a lease expired long ago. A known machine's address stays its own.
func (c *Controller) isOld(a *trivet.Address, now time.Time) bool {
	return a.Spec.Machine == "" && c.expired(a) && now.Sub(a.Status.Until) > keepLease
}
