package fleet

import (
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// finishRelease applies the end of a release to its machine: available, or still in quarantine, after a success. A
// release that failed leaves the machine in quarantine, and powered off where it has a BMC.
func (f *Fleet) finishRelease(t *transition) error {
	m, s := t.machine, &t.workflow.Status
	t.dropIntent()
	if s.State == trivet.WorkflowSucceeded {
		return f.released(t)
	}
	t.raiseEpoch()
	if m.Spec.BMC != nil {
		f.setIntent(t, "off")
	}
	if s.Failure == nil { // it was cancelled
		t.explainRelease()
		return nil
	}
	if m.Spec.BMC != nil { // or else no one may have booted it
		if err := f.weigh(t); err != nil {
			return err
		}
	}
	what := "release"
	if t.workflow.Spec.Release.IsCheck() {
		if !workflow.FoundFault(t.workflow, m.Spec.BMC != nil) {
			return t.leaveUnchecked()
		}
		what = "check"
	}
	return t.quarantine(fmt.Sprintf("its %s failed at %s of %s: %s", what, s.Failure.Step, t.workflow.ShortName(),
		s.Failure.Cause))
}

// leaveUnchecked leaves a machine that could not be checked, by no fault of its own, as it was: in quarantine for its
// former reason, or available as soon as it is off.
func (t *transition) leaveUnchecked() error {
	m := t.machine
	if m.Status.State != trivet.MachineQuarantined && m.Spec.BMC == nil {
		if err := workflow.Change(&m.Status, workflow.Clear); err != nil { // nothing has run on it but an agent
			return err
		}
	}
	t.explainRelease()
	return nil
}

// released makes a machine available whose release has succeeded, or in quarantine still where nothing was checked.
func (f *Fleet) released(t *transition) error {
	m, mode := t.machine, t.workflow.Spec.Release
	if err := workflow.Change(&m.Status, workflow.Clear); err != nil {
		return err
	}
	if mode == trivet.ReleaseWipe {
		m.Status.HoldsData = ""
	}
	if workflow.PoweredOff(t.workflow) {
		m.Status.Power = "off"
	}
	if mode.IsCheck() && m.Status.State == trivet.MachineQuarantined {
		if err := workflow.Change(&m.Status, workflow.Accept); err != nil {
			return err
		}
	}
	t.explainRelease()
	what := "released"
	if mode.IsCheck() {
		what = "checked"
	}
	t.event(trivet.ReasonAvailable, "%s: %s", what, workflow.Released(mode))
	return nil
}

// abandonRelease cancels the release of a machine that the operator accepts although it has not ended. One that is in
// quarantine leaves it and goes on.
func (f *Fleet) abandonRelease(t *transition) error {
	if t.machine.Status.State != trivet.MachineReleasing || !t.active {
		return nil
	}
	return f.cancel(t, "the machine was accepted: "+workflow.Released(trivet.ReleaseNoWipe))
}

// acceptData ends that an available machine is kept from selectors for the data on its disks. changed: it was.
func (t *transition) acceptData() (changed bool) {
	st := &t.machine.Status
	if st.HoldsData == "" {
		return false
	}
	t.event(trivet.ReasonAccepted, "accepted by the operator: the data of %s on its disks may be overwritten",
		st.HoldsData)
	st.HoldsData = ""
	return true
}

// powerOff requests that the BMC powers off a machine whose release has come to that.
func (f *Fleet) powerOff(t *transition) {
	const stopping = trivet.WorkflowStopping
	if t.workflow.Status.State == stopping && t.was.State != stopping && t.machine.Spec.BMC != nil {
		f.setIntent(t, "off")
	}
}
