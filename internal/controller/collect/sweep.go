package collect

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// runs deletes the ended runs of provisions that are gone, and makes those history that are not the last of their
// machine.
func (c *Controller) runs(ctx context.Context, now time.Time) error {
	return each(ctx, &c.pass, keyRuns, c.Tables.Workflows, func(w *trivet.Workflow) error {
		switch {
		case c.isUnused(w, now):
			return c.deleteRun(ctx, w.FullName(), now)
		case c.isFormer(w, now):
			return c.retire(ctx, w.FullName())
		}
		return nil
	})
}

// isUnused reports whether a run ended long ago and its provision is gone, by this head's copy.
func (c *Controller) isUnused(w *trivet.Workflow, now time.Time) bool {
	return old(w, now) && !exists(c.Tables.Provisions.GetShared, provisionOf(w), w.Spec.ProvisionUID)
}

func (c *Controller) deleteRun(ctx context.Context, name string, now time.Time) error {
	return c.delete(ctx, "Workflow", name, func(tx *store.Tx) (bool, error) {
		w, err := c.Tables.Workflows.In(tx).Get(name)
		if err != nil || !old(w, now) {
			return false, err
		}
		current := isCurrent(c.Tables.Machines.In(tx).Get, w)
		return !current && !exists(c.Tables.Provisions.In(tx).Get, provisionOf(w), w.Spec.ProvisionUID), nil
	})
}

// provisionOf returns the full name of a run's provision.
func provisionOf(w *trivet.Workflow) string { return trivet.Resolve(w.Project, w.Spec.Provision) }

// old reports whether a run ended so long ago that it may be deleted.
func old(w *trivet.Workflow, now time.Time) bool {
	return w.Status.State.Ended() && now.Sub(w.Status.Ended) >= keepRun
}

// exists reports whether a record exists, by name and UID, or cannot be read.
func exists[T any](get func(name string) (*T, error), name, uid string) bool {
	r, err := get(name)
	if errors.Is(err, trivet.ErrNotFound) {
		return false
	}
	return err != nil || any(r).(trivet.Record).Header().UID == uid
}

// oldLogs removes this head's logs of runs that are gone, whichever head deleted them. A log is created after its
// run: a read that is newer than the list of logs shows the run of each. Of logs whose runs are not in the copy, one
// sweep considers so many at most, and the next one goes on after them.
func (c *Controller) oldLogs(ctx context.Context, now time.Time) error {
	names, err := c.Logs.Workflows()
	names = slices.DeleteFunc(names, c.isHot)
	if err != nil || len(names) == 0 {
		return err
	}
	if err := c.Tables.Store.Sync(ctx); err != nil {
		return err
	}
	var failed []error
	for _, name := range c.nextLogs(names) {
		has, err := c.hasRun(ctx, name)
		if err == nil && !has {
			err = c.removeLog(name, now)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// nextLogs returns the names that a sweep considers.
func (c *Controller) nextLogs(names []string) []string {
	slices.Sort(names)
	from, found := slices.BinarySearch(names, c.logsAfter)
	if found {
		from++
	}
	if from == len(names) {
		from = 0
	}
	names = names[from:min(len(names), from+maxLogs)]
	c.logsAfter = names[len(names)-1]
	return names
}

func (c *Controller) removeLog(name string, now time.Time) error {
	written, err := c.Logs.LastWritten(name)
	if err == nil && now.Sub(written) > keepLog {
		err = c.Logs.Remove(name)
	}
	return err
}

// isHot reports whether this head's copy has a run, or cannot be read.
func (c *Controller) isHot(name string) bool {
	_, err := c.Tables.Workflows.GetShared(name)
	return !errors.Is(err, trivet.ErrNotFound)
}

// hasRun reports whether there is a run, or one that cannot be read. It may be a former one.
func (c *Controller) hasRun(ctx context.Context, name string) (bool, error) {
	if c.isHot(name) {
		return true, nil
	}
	return c.Tables.Workflows.HasFormer(ctx, name)
}

// leases deletes expired leases, and the addresses of ports that their machine no longer has: one that was assigned
// while the port was removed.
func (c *Controller) leases(ctx context.Context, now time.Time) error {
	return each(ctx, &c.pass, keyLeases, c.Tables.Addresses, func(a *trivet.Address) error {
		if !c.isOld(a, now) && ownedIn(c.Tables.Machines.GetShared, a) {
			return nil
		}
		return c.delete(ctx, "Address", a.Name, func(tx *store.Tx) (bool, error) {
			a, err := c.Tables.Addresses.In(tx).Get(a.Name)
			return err == nil && (c.isOld(a, now) || !ownedIn(c.Tables.Machines.In(tx).Get, a)), err
		})
	})
}

// isOld reports whether a lease expired long ago. A known machine's address stays its own.
func (c *Controller) isOld(a *trivet.Address, now time.Time) bool {
	return a.Spec.Machine == "" && c.Expired(a) && now.Sub(a.Status.Until) > keepLease
}

// ownedIn reports whether the machine of an address has its port. It is true for a lease of no machine, and if the
// machine cannot be read.
func ownedIn(get func(name string) (*trivet.Machine, error), a *trivet.Address) bool {
	if a.Spec.Machine == "" {
		return true
	}
	m, err := get(a.Spec.Machine)
	if errors.Is(err, trivet.ErrNotFound) {
		return false
	}
	return err != nil || m.UID == a.Spec.MachineUID && m.HasMAC(a.Spec.MAC)
}

// events drops the events of subjects that are no machines, or none any more, when all of them are old. It reads one
// event of each subject, and all of those that may be dropped.
func (c *Controller) events(ctx context.Context, now time.Time) error {
	beyond := c.after[keyEvents]
	for range slice {
		e, err := c.Tables.Events.Next(ctx, beyond)
		if err != nil {
			return err
		}
		if e == nil {
			c.ended(keyEvents, "", false)
			return nil
		}
		if beyond, err = c.eventsOf(ctx, e, now); err != nil {
			return err
		}
	}
	c.ended(keyEvents, beyond, true)
	return ctx.Err()
}

// eventsOf drops the events of the subject of one of them, if they may be dropped, and returns the prefix of their
// names.
func (c *Controller) eventsOf(ctx context.Context, e *trivet.Event, now time.Time) (prefix string, err error) {
	machine, _ := strings.CutPrefix(e.Spec.Subject, "machine/")
	prefix = trivet.EventPrefix(e.Spec.Subject, e.Spec.SubjectUID)
	if !strings.HasPrefix(e.Name, prefix) || prefix == "" {
		return e.Name, nil
	}
	uid := e.Spec.SubjectUID
	if exists(c.Tables.Machines.GetShared, machine, uid) || hasUID(c.Tables.MachinesOnce(machine), uid) {
		return prefix, nil
	}
	return prefix, c.dropEvents(ctx, prefix, uid, now)
}

// dropEvents drops the events under a prefix if all are old, unless there is a machine with a UID. That was renamed since
// its older events: the newest one has the name that it has now, or had before it was renamed at this moment.
func (c *Controller) dropEvents(ctx context.Context, prefix, uid string, now time.Time) error {
	all, err := c.Tables.Events.Under(ctx, prefix, "", 0)
	if err != nil || len(all) == 0 {
		return err
	}
	for _, e := range all {
		if now.Sub(e.Spec.Time) < keepEvent {
			return nil
		}
	}
	newest := slices.MaxFunc(all, func(a, b *trivet.Event) int { return cmp.Compare(a.Spec.Seq, b.Spec.Seq) })
	machine := strings.TrimPrefix(newest.Spec.Subject, "machine/")
	_, err = c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		machines := c.Tables.Machines.In(tx)
		if exists(machines.Get, machine, uid) || hasUID(machines.ListBy(state.ByFormerName, machine), uid) {
			return nil
		}
		c.busy = true
		return c.Tables.Events.In(tx).Drop(prefix)
	})
	return err
}

func hasUID(machines []*trivet.Machine, uid string) bool {
	return slices.ContainsFunc(machines, func(m *trivet.Machine) bool { return m.UID == uid })
}

// orphans deletes what exists only with a record that is gone: what the record's deletion left, since there was too
// much of it, or since it was created at the same moment. A slice ends with the records of one kind of reference, or
// goes on with those of the next.
func (c *Controller) orphans(ctx context.Context) error {
	left := slice
	for ; c.reference < len(trivet.References); c.reference++ {
		ref := trivet.References[c.reference]
		if ref.OnDelete != trivet.DeletionCascades || ref.From == "Provision" { // whose controller releases its machine
			continue
		}
		n, err := c.orphansOf(ctx, ref, left)
		if err != nil {
			return err
		}
		if left -= n; left == 0 {
			c.more = true
			return ctx.Err()
		}
	}
	c.reference = 0
	return ctx.Err()
}

// orphansOf deletes those among the next records of one kind, at most so many, and returns their number.
func (c *Controller) orphansOf(ctx context.Context, ref trivet.Reference, most int) (int, error) {
	after := c.after[keyOrphans]
	records, _ := c.Tables.Store.List(ref.From, "", after, most)
	for _, raw := range records {
		after = raw.Name()
		rec := raw.Record()
		if rec == nil || !slices.ContainsFunc(ref.Targets(rec), c.isGone(ref.To)) {
			continue
		}
		if err := c.deleteOrphan(ctx, ref, after); err != nil {
			return 0, err
		}
	}
	c.ended(keyOrphans, after, len(records) == most)
	return len(records), nil
}

// isGone reports whether this head's copy has no such record.
func (c *Controller) isGone(kind trivet.Kind) func(trivet.Target) bool {
	return func(t trivet.Target) bool {
		raw, err := c.Tables.Store.Get(kind, t.Name)
		return errors.Is(err, trivet.ErrNotFound) || err == nil && raw.Record() != nil && !t.Is(raw.Record().Header())
	}
}

func (c *Controller) deleteOrphan(ctx context.Context, ref trivet.Reference, name string) error {
	return c.delete(ctx, ref.From, name, func(tx *store.Tx) (bool, error) {
		rec, err := tx.Record(ref.From, name)
		if err != nil {
			return false, err
		}
		for _, t := range ref.Targets(rec) {
			found, err := tx.Record(ref.To, t.Name)
			if err == nil && t.Is(found.Header()) || err != nil && !errors.Is(err, trivet.ErrNotFound) {
				return false, nil
			}
		}
		return len(ref.Targets(rec)) > 0, nil
	})
}
