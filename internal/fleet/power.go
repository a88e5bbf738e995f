package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// setIntent writes the power state that a machine needs, and what it must boot from. That of a run which is paused is
// kept until it is resumed.
func (f *Fleet) setIntent(t *transition, want string) {
	if p := t.pause(); p != nil {
		t.dropIntent()
		p.Power = want
		return
	}
	f.writeIntent(t, want)
}

func (f *Fleet) writeIntent(t *transition, want string) {
	t.dropIntent()
	st := &t.machine.Status
	st.Intent = &trivet.PowerIntent{
		Want: want, Boot: workflow.BootDevice(t.workflow), Until: f.now().Add(workflow.IntentTimeout),
		Head: st.PowerHead,
	}
	st.PowerHead = ""
}

// Power requests a power state of a machine for an operator, unless that would harm.
func (f *Fleet) Power(ctx context.Context, machine string, req trivet.PowerRequest) error {
	return f.onMachine(ctx, "power "+req.Want, machine, func(t *transition) error {
		run := t.workflow
		if !t.active {
			run = nil
		}
		boot, err := workflow.RequestedPower(t.machine, run, req)
		if err != nil {
			return err
		}
		f.writeIntent(t, req.Want)
		t.machine.Status.Intent.Boot = boot
		t.event(trivet.ReasonPowerRequested, "an operator requested power %s", req.Want)
		return nil
	})
}

// dropIntent deletes the machine's intent. The head that holds it may be sending to the BMC at this moment.
func (t *transition) dropIntent() {
	st := &t.machine.Status
	if st.Intent != nil && st.Intent.Head != "" {
		st.PowerHead = st.Intent.Head
	}
	st.Intent = nil
	if p := t.pause(); p != nil {
		p.Power = ""
	}
}

// ReleaseBMC records that this head does not use the machine's BMC.
func (f *Fleet) ReleaseBMC(ctx context.Context, machine string) error {
	return f.onMachine(ctx, "release BMC", machine, func(t *transition) error {
		if t.machine.Status.PowerHead != f.head {
			return errUnchanged
		}
		t.machine.Status.PowerHead = ""
		return nil
	})
}

// AcquireIntent makes this head the one that uses the machine's BMC for a duration, and returns the intent as it
// is held then. It is empty where the record no longer has that intent, or another head has acquired it since.
func (f *Fleet) AcquireIntent(ctx context.Context, machine string, intent trivet.PowerIntent,
	hold time.Duration) (held trivet.PowerIntent, err error) {
	err = f.onMachine(ctx, "acquire power intent", machine, func(t *transition) error {
		held = trivet.PowerIntent{}
		now := t.machine.Status.Intent
		if now == nil || !workflow.SameIntent(*now, intent) || now.Head != intent.Head || !now.Held.Equal(intent.Held) {
			return errUnchanged
		}
		now.Head, now.Held = f.head, f.now().Add(hold)
		held = *now
		return nil
	})
	return held, err
}

// RecordPower records the power state that the BMC reports. A cycle whose machine is off is incomplete: the next head
// that acquires the intent only powers on. Every other intent is done.
func (f *Fleet) RecordPower(ctx context.Context, machine string, intent trivet.PowerIntent, power string) error {
	return f.onIntent(ctx, machine, intent, func(t *transition) {
		st := &t.machine.Status
		st.Power, st.PowerError = power, nil
		if power == "off" && workflow.StateOf(st) != trivet.MachineReleasing && intent.Want == "off" {
			t.event(trivet.ReasonPoweredOff, "the BMC powered the machine off")
		}
		cycled := intent.Want == "cycle" && workflow.StateOf(st) == trivet.MachineUnverified // it boots its disk again
		if t.isOff = power == "off"; t.isOff && !cycled {
			t.clear("its BMC reports it off")
		}
		if power == "off" && intent.Want == "cycle" {
			st.Intent.Off = true
			return
		}
		st.Intent = nil
		if power == "on" && (t.run == nil || !t.run.PowerSet()) {
			t.event(trivet.ReasonPoweredOn, "the BMC powered the machine on, to boot from %s", intent.Boot)
		}
	})
}

// DropIntent drops an intent, unless it changed since it was read or another head acquired it: it could not be carried
// out in time, for a cause, or it is too old to be carried out, where cause is nil. The latter is decided again from
// what is recorded now.
func (f *Fleet) DropIntent(ctx context.Context, machine string, intent trivet.PowerIntent, cause error) error {
	return f.onMachine(ctx, "drop power intent", machine, func(t *transition) error {
		now := t.machine.Status.Intent
		if now == nil || !workflow.SameIntent(*now, intent) || now.Head != intent.Head || !now.Held.Equal(intent.Held) {
			return errUnchanged
		}
		t.machine.Status.Intent = nil // no dropIntent: the head that held it has stopped
		if cause == nil {
			f.expirePower(t, intent)
		} else {
			t.failPower(cause)
		}
		return nil
	})
}

// NotePowerFailed records why an intent that this head holds, and tries again, was not carried out yet.
func (f *Fleet) NotePowerFailed(ctx context.Context, machine string, intent trivet.PowerIntent, cause error) error {
	return f.onIntent(ctx, machine, intent, func(t *transition) {
		t.failPower(fmt.Errorf("%w; it is tried again until the power request expires", cause))
	})
}

// failPower records why the machine could not be powered on.
func (t *transition) failPower(cause error) {
	t.events = append(t.events, workflow.Event{
		Reason: trivet.ReasonPowerFailed, Step: trivet.StepPowerOn, Message: cause.Error(), Warning: true,
	})
	if t.workflow != nil && t.active {
		if s := t.workflow.Status.Current(); s != nil {
			s.Cause = cause.Error()
		}
	}
}

// expirePower decides again about a machine whose intent is too old.
func (f *Fleet) expirePower(t *transition, intent trivet.PowerIntent) {
	want := workflow.WantedPower(&t.machine.Status, t.workflow)
	if want == "" {
		t.event(trivet.ReasonPowerExpired, "dropped an old request to power %s: nothing waits for it", intent.Want)
		return
	}
	f.setIntent(t, want)
	t.event(trivet.ReasonPowerExpired, "replaced an old request to power %s: the machine still needs power %s",
		intent.Want, want)
}

// onIntent runs a transition under an intent that this head holds. It fails with ErrFenced where that is no longer
// so.
func (f *Fleet) onIntent(ctx context.Context, machine string, intent trivet.PowerIntent, do func(*transition)) error {
	return f.onMachine(ctx, "record power", machine, func(t *transition) error {
		now := t.machine.Status.Intent
		if now == nil || !workflow.SameIntent(*now, intent) || now.Head != f.head {
			return trivet.ErrFenced
		}
		do(t)
		return nil
	})
}
