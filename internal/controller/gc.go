package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/store"
)

// leftovers removes what nobody points to any more: runs of provisions that are gone, logs of runs that are gone, and leases
// that ran out.
//
// Reads: workflows, provisions, machines, addresses. Writes: deletes workflows and addresses, and logs on this head.
type leftovers struct {
	fleet *fleet.Fleet
	logs  *runlog.Store
}

const (
	// keepRun is how long an ended run stays after its provision is gone, for whoever wants to know why.
	keepRun = 7 * 24 * time.Hour
	// keepLease is how long a lease that ran out stays, so that its machine gets the same address again.
	keepLease = 24 * time.Hour
	// keepLog is how long a log stays after it was last written to, whether its run is known or not.
	keepLog   = time.Hour
	sweepEach = 10 * time.Minute
)

// run sweeps now and then until ctx ends.
func (l *leftovers) run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(sweepEach)
	defer tick.Stop()
	for {
		if err := l.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *leftovers) sweep(ctx context.Context, now time.Time) error {
	return errors.Join(l.runs(ctx, now), l.oldLogs(ctx, now), l.leases(ctx, now))
}

func (l *leftovers) runs(ctx context.Context, now time.Time) error {
	for _, w := range l.fleet.Workflows.List() {
		if !w.Status.State.Ended() || now.Sub(w.Status.Ended) < keepRun {
			continue
		}
		if _, err := l.fleet.Provisions.Get(w.Spec.Provision); !errors.Is(err, trivet.ErrNotFound) {
			continue
		}
		if m, err := l.fleet.Machines.Get(w.Spec.Machine); err == nil && m.Status.Workflow == w.Name {
			continue
		}
		_, err := l.fleet.Store.Update(ctx, func(tx *store.Tx) error { return l.fleet.Workflows.In(tx).Delete(w.Name) })
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
	}
	return nil
}

// oldLogs removes this head's logs of runs that are gone, whoever deleted them. A log comes after its run was made: a read that
// is fresher than the list of logs shows the run of each.
func (l *leftovers) oldLogs(ctx context.Context, now time.Time) error {
	names, err := l.logs.Workflows()
	names = slices.DeleteFunc(names, l.known)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := l.fleet.Store.Sync(ctx); err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		if l.known(name) {
			continue
		}
		written, err := l.logs.LastWritten(name)
		if err == nil && now.Sub(written) > keepLog {
			err = l.logs.Remove(name)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// known says whether this head's copy has a run, as far as can be told.
func (l *leftovers) known(run string) bool {
	_, err := l.fleet.Workflows.GetShared(run)
	return !errors.Is(err, trivet.ErrNotFound)
}

func (l *leftovers) leases(ctx context.Context, now time.Time) error {
	for _, a := range l.fleet.Addresses.List() {
		if !expired(a, now) {
			continue
		}
		_, err := l.fleet.Store.Update(ctx, func(tx *store.Tx) error {
			a, err := l.fleet.Addresses.In(tx).Get(a.Name)
			if err != nil || !expired(a, now) {
				return err
			}
			return l.fleet.Addresses.In(tx).Delete(a.Name)
		})
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
	}
	return nil
}

// expired: a machine's own address stays its own; a stranger's lease ends.
func expired(a *trivet.Address, now time.Time) bool {
	return !a.Spec.Fixed && a.Spec.Machine == "" && !a.Status.Until.IsZero() && now.Sub(a.Status.Until) > keepLease
}
