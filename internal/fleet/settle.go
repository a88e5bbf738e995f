package fleet

import (
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// settle does what the end of a run means for its machine and its provision.
func (f *Fleet) settle(c *change) error {
	m, s := c.machine, &c.workflow.Status
	switch s.State {
	case trivet.WorkflowSucceeded:
		m.Status.State, m.Status.Reason, m.Status.Activated = trivet.MachineActive, "", f.now()
	case trivet.WorkflowFailed:
		raise(m)
		c.free()
		if s.Failure.Type == trivet.FaultMachine {
			c.quarantine(fmt.Sprintf("%s of %s: %s", s.Failure.Step, c.workflow.Name, s.Failure.Cause))
		}
	default:
		raise(m)
		c.free()
	}
	return f.settleProvision(c)
}

// free gives the machine back to placement.
func (c *change) free() {
	st := &c.machine.Status
	st.State, st.Reason, st.Provision = trivet.MachineAvailable, "", ""
	c.dropIntent()
}

func (c *change) quarantine(reason string) {
	c.machine.Status.State, c.machine.Status.Reason = trivet.MachineQuarantined, reason
	c.happened = append(c.happened, workflow.Happening{Reason: "Quarantined", Message: reason, Warning: true})
}

// settleProvision tells the provision, where it is still there, how its run ended.
func (f *Fleet) settleProvision(c *change) error {
	p, err := f.Provisions.In(c.tx).Get(c.workflow.Spec.Provision)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && p.Status.Workflow != c.workflow.Name {
		return nil
	}
	if err != nil {
		return err
	}
	s := &c.workflow.Status
	p.Status.Ended, p.Status.Reason, p.Status.Failure = f.now(), "", s.Failure
	p.Status.State = trivet.ProvisionSucceeded
	if s.State != trivet.WorkflowSucceeded {
		p.Status.State = trivet.ProvisionFailed
		p.Status.Reason = "cancelled"
	}
	if s.Failure != nil {
		p.Status.Reason = fmt.Sprintf("%s failed on %s (%s): %s", s.Failure.Step, c.machine.Name, s.Failure.Type, s.Failure.Cause)
	}
	return f.Provisions.In(c.tx).Put(p)
}
