package fleet

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Accept makes a discovered machine available, and one whose former system may still run. A quarantined machine
// returns to its former state.
func (f *Fleet) Accept(ctx context.Context, machine string) error {
	return f.onMachine(ctx, "accept", machine, func(t *transition) error {
		if changed, err := f.accept(t); err != nil || changed {
			return err
		}
		return errUnchanged
	})
}

// accept accepts the machine, and reports whether that changed anything.
func (f *Fleet) accept(t *transition) (changed bool, err error) {
	st := &t.machine.Status
	was := st.State
	if err := f.abandonRelease(t); err != nil {
		return false, err
	}
	if err := workflow.Change(st, workflow.Accept); err != nil {
		return false, err
	}
	if was == st.State {
		return t.acceptData(), nil
	}
	t.explainRelease()
	t.event(trivet.ReasonAccepted, "accepted by the operator; it was %s and is %s", was, st.State)
	return true, nil
}

// Quarantine keeps a machine out of placement, for a reason. A run on it is cancelled; an installed system goes on.
func (f *Fleet) Quarantine(ctx context.Context, machine, reason string) error {
	return f.onMachine(ctx, "quarantine", machine, func(t *transition) error {
		if err := f.cancel(t, "the machine was quarantined: "+reason); err != nil {
			return err
		}
		return t.quarantine(reason)
	})
}

// cancel ends the machine's run, where it has one.
func (f *Fleet) cancel(t *transition, why string) error {
	if t.active {
		t.run.Cancel(why)
		t.active = false
		return f.finish(t)
	}
	if workflow.HasRun(&t.machine.Status) { // whose record is gone
		return f.vacate(t)
	}
	return nil
}

// Release takes the machine from a provision that is being deleted: its run is cancelled, its agent refused, and an
// installed system is powered off. Where the site says so, the machine's disks are wiped or kept, by a run. An address
// that waits for the next machine is free. It is part of the transaction that deletes the provision.
func (f *Fleet) Release(tx *store.Tx, p *trivet.Provision) error {
	if race := p.Status.Race; race != nil {
		if err := f.stopSecond(tx, p, race, trivet.ReasonReleased, "the provision was deleted"); err != nil {
			return err
		}
	}
	if p.Status.Machine == "" {
		return f.dropAddress(tx, p)
	}
	t, err := f.load(tx, p.Status.Machine)
	if errors.Is(err, trivet.ErrNotFound) ||
		err == nil && (t.machine.UID != p.Status.MachineUID || t.machine.Status.Provision != p.ShortName()) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.checkNoHead(t, "release"); err != nil {
		return err
	}
	return f.giveUp(t, p, trivet.ReasonReleased, "the provision was deleted")
}

// giveUp takes a machine from its provision, as [Fleet.Release] says.
func (f *Fleet) giveUp(t *transition, p *trivet.Provision, reason, why string) error {
	frozen := t.workflow != nil && t.workflow.Status.Frozen
	if mode := t.releaseMode(); mode != trivet.ReleaseNoWipe && !frozen {
		return f.releaseBy(t, p, mode, reason, why)
	}
	if t.active {
		t.run.Cancel(why)
		t.events, t.active = append(t.events, t.run.Events...), false
		t.run.Events = nil
	}
	t.event(reason, "provision %s: %s", p.ShortName(), why)
	if err := f.vacate(t); err != nil {
		return err
	}
	return f.save(t)
}

// vacate takes the machine from its provision and its agent. One that has booted its disk is powered off first.
func (f *Fleet) vacate(t *transition) error {
	if t.workflow != nil && t.workflow.Status.Frozen {
		return t.vacateFrozen()
	}
	st := &t.machine.Status
	st.Provision = ""
	t.raiseEpoch()
	t.dropIntent()
	if err := workflow.Change(st, workflow.Vacate(st, t.workflow)); err != nil {
		return err
	}
	if workflow.StateOf(st) == trivet.MachineReleasing && t.machine.Spec.BMC != nil {
		f.setIntent(t, "off")
	}
	t.explainRelease()
	return nil
}

// clear makes a releasing machine available: nothing but an agent runs on it. A run that releases it decides when.
func (t *transition) clear(why string) {
	if t.active && workflow.IsRelease(t.workflow) {
		t.run.Stopped(why)
		return
	}
	if workflow.Change(&t.machine.Status, workflow.Clear) != nil {
		return
	}
	t.explainRelease()
	t.event(trivet.ReasonAvailable, "its former system does not run any more: %s", why)
}

// explainRelease sets the reason of a state that is not a quarantine.
func (t *transition) explainRelease() {
	st := &t.machine.Status
	switch {
	case st.State == trivet.MachineQuarantined:
	case st.State == trivet.MachineUnverified:
		st.Reason = workflow.UnverifiedReason
	case st.State != trivet.MachineReleasing:
		st.Reason = ""
	case t.workflow != nil && !t.workflow.Status.State.Ended() && workflow.IsRelease(t.workflow):
		st.Reason = releasingReason(t.workflow)
	case st.Intent != nil:
		st.Reason = "its former system may still run: waits for its BMC to power it off"
	default:
		st.Reason = "its former system may still run: boot it from the network, or run: trivet accept " + t.machine.Name
	}
}
