package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// adapter changes the records of a restored store to what is certain of a cluster that went on after they were saved.
type adapter struct {
	tables   *state.Tables
	plan     *Plan
	progress Progress
}

// perTransaction is how many machines, with their runs, are changed at once.
const perTransaction = 20

func (a *adapter) run(ctx context.Context) error {
	machines, provisions := a.tables.Machines.Names(), a.tables.Provisions.Names()
	done, total := int64(0), int64(len(machines)+len(provisions))
	for _, part := range []struct {
		names  []string
		change func(tx *store.Tx, name string) error
	}{{machines, a.machine}, {provisions, a.provision}} {
		for names := range slices.Chunk(part.names, perTransaction) {
			err := a.update(ctx, func(tx *store.Tx) error {
				for _, name := range names {
					if err := part.change(tx, name); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			if done += int64(len(names)); a.progress != nil {
				a.progress("records", done, total)
			}
		}
	}
	return a.update(ctx, a.cluster)
}

func (a *adapter) update(ctx context.Context, do func(tx *store.Tx) error) error {
	_, err := a.tables.Store.Update(ctx, do)
	return err
}

// runOf returns a machine's run, as the rules need it; nil where there is none.
func runOf(t *state.Tables, m *trivet.Machine) *trivet.Workflow {
	if m.Status.Workflow == "" {
		return nil
	}
	w, err := t.Workflows.Get(trivet.Resolve("", m.Status.Workflow))
	if err != nil || w.Spec.MachineUID != m.UID {
		return nil
	}
	return w
}

func recoverMachine(m *trivet.Machine, w *trivet.Workflow, now time.Time) {
	workflow.Recover(&m.Status, w, now)
}

func isUnverified(m *trivet.Machine) bool {
	return workflow.StateOf(&m.Status) == trivet.MachineUnverified
}

func (a *adapter) machine(tx *store.Tx, name string) error {
	m, err := a.tables.Machines.In(tx).Get(name)
	if err != nil {
		return err
	}
	w, err := a.runIn(tx, m)
	if err != nil {
		return err
	}
	going := w != nil && !w.Status.State.Ended()
	if recoverMachine(m, w, a.plan.Time); going {
		err = a.tables.Workflows.In(tx).Put(w)
	}
	return errors.Join(err, a.tables.Machines.In(tx).Put(m))
}

func (a *adapter) runIn(tx *store.Tx, m *trivet.Machine) (*trivet.Workflow, error) {
	if m.Status.Workflow == "" {
		return nil, nil
	}
	w, err := a.tables.Workflows.In(tx).Get(trivet.Resolve("", m.Status.Workflow))
	if errors.Is(err, trivet.ErrNotFound) || err == nil && w.Spec.MachineUID != m.UID {
		return nil, nil
	}
	return w, err
}

func (a *adapter) provision(tx *store.Tx, name string) error {
	p, err := a.tables.Provisions.In(tx).Get(name)
	if err != nil || p.Status.State.Ended() {
		return err
	}
	workflow.RecoverProvision(&p.Status)
	return a.tables.Provisions.In(tx).Put(p)
}

// suspend stops the schedules of backups: this may be a rehearsal, or older than what is in their places.
func (a *adapter) suspend(tx *store.Tx) error {
	for _, name := range a.plan.Schedules {
		b, err := a.tables.Schedules.In(tx).Get(name)
		if err != nil {
			return err
		}
		b.Spec.Suspend, b.Status.Running = true, false
		if err := a.tables.Schedules.In(tx).Put(b); err != nil {
			return err
		}
	}
	return nil
}

// endUpgrade ends an upgrade that was in progress: its heads are fenced.
func (a *adapter) endUpgrade(tx *store.Tx) error {
	u, err := a.tables.Upgrades.In(tx).Get(trivet.UpgradeName)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !u.InProgress() {
		return nil
	}
	if err != nil {
		return err
	}
	u.Status.Run, u.Status.Phase, u.Status.Ended = u.Spec.Run, trivet.UpgradeReverted, a.plan.Time
	u.Status.Head, u.Status.Reason, u.Status.Cause = "", "", "the cluster was recovered"
	return a.tables.Upgrades.In(tx).Put(u)
}

// cluster fences all heads, and records the recovery. It is the last change.
func (a *adapter) cluster(tx *store.Tx) error {
	if err := a.suspend(tx); err != nil {
		return err
	}
	if err := a.endUpgrade(tx); err != nil {
		return err
	}
	p := a.plan
	for _, name := range p.Heads {
		h, err := a.tables.Heads.In(tx).Get(name)
		if err != nil {
			return err
		}
		h.Spec.Remove = true
		h.Status.State, h.Status.Removed, h.Status.Fenced = trivet.HeadRemoved, p.Time, true
		h.Status.Reason = fmt.Sprintf("the cluster was recovered without it, as incarnation %s", p.Incarnation)
		if err := a.tables.Heads.In(tx).Put(h); err != nil {
			return err
		}
	}
	site, err := a.tables.Sites.In(tx).Get(trivet.SiteName)
	if errors.Is(err, trivet.ErrNotFound) {
		site, err = &trivet.Site{Meta: trivet.Meta{Kind: "Site", Name: trivet.SiteName}}, nil
	}
	if err != nil {
		return err
	}
	if site.Spec.Blobs != nil { // as for schedules of backups
		site.Spec.Blobs.Suspend = true
	}
	st := &site.Status
	st.HeadNames = max(st.HeadNames, p.names)
	if st.ClusterVersion.Compare(trivet.CurrentRelease) < 0 { // the only head has it
		st.ClusterVersion = trivet.CurrentRelease
	}
	st.Recovered = &trivet.Recovered{Incarnation: p.Incarnation, From: p.From, Time: p.Time, DataTime: p.DataTime,
		Revision: p.Revision, Head: p.Head, Cause: p.Cause}
	return a.tables.Sites.In(tx).Put(site)
}
