package fleet

import (
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// finish applies the end of a run to its machine and its provision.
func (f *Fleet) finish(t *transition) error {
	m, s := t.machine, &t.workflow.Status
	switch s.State {
	case trivet.WorkflowSucceeded:
		m.Status.State, m.Status.Reason, m.Status.Activated = trivet.MachineActive, "", f.now()
		t.dropIntent() // it is up without
	case trivet.WorkflowFailed:
		t.raiseEpoch()
		t.makeAvailable()
		if s.Failure.Type == trivet.FaultMachine {
			t.quarantine(fmt.Sprintf("%s of %s: %s", s.Failure.Step, t.workflow.Name, s.Failure.Cause))
		}
	default:
		t.raiseEpoch()
		t.makeAvailable()
	}
	return f.finishProvision(t)
}

// makeAvailable returns the machine to placement.
func (t *transition) makeAvailable() {
	st := &t.machine.Status
	st.State, st.Reason, st.Provision = trivet.MachineAvailable, "", ""
	t.dropIntent()
}

func (t *transition) quarantine(reason string) {
	t.machine.Status.State, t.machine.Status.Reason = trivet.MachineQuarantined, reason
	t.events = append(t.events, workflow.Event{Reason: trivet.ReasonQuarantined, Message: reason, Warning: true})
}

// finishProvision writes into the provision, where it still exists, how its run ended.
func (f *Fleet) finishProvision(t *transition) error {
	p, err := f.Provisions.In(t.tx).Get(t.workflow.Spec.Provision)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && p.Status.Workflow != t.workflow.Name {
		return nil
	}
	if err != nil {
		return err
	}
	s := &t.workflow.Status
	p.Status.Ended, p.Status.Reason, p.Status.Failure = f.now(), "", s.Failure
	p.Status.State = trivet.ProvisionSucceeded
	if s.State != trivet.WorkflowSucceeded {
		p.Status.State = trivet.ProvisionFailed
		p.Status.Reason = "cancelled"
	}
	if s.Failure != nil {
		p.Status.Reason = fmt.Sprintf("%s failed on %s (%s): %s", s.Failure.Step, t.machine.Name, s.Failure.Type,
			s.Failure.Cause)
	}
	return f.Provisions.In(t.tx).Put(p)
}
