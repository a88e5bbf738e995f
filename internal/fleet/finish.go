package fleet

import (
	"errors"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// finish applies the end of a run to its machine and its provision.
func (f *Fleet) finish(t *transition) error {
	m, s := t.machine, &t.workflow.Status
	if workflow.IsRelease(t.workflow) {
		return f.finishRelease(t)
	}
	var err error
	if s.State == trivet.WorkflowSucceeded {
		m.Status.Reason = ""
		t.dropIntent() // it is up without
		err = errors.Join(workflow.Change(&m.Status, workflow.Activate), f.succeeded(t, "Image"), f.keepOne(t))
		t.recordEnd(f.now())
	} else {
		err = f.vacateKeeping(t)
	}
	if err == nil && s.Failure != nil {
		err = f.weigh(t)
		f.countFailure(t)
	}
	if err == nil && s.Failure != nil && s.Failure.Type == trivet.FaultMachine {
		err = t.quarantine(faultOf(t.workflow))
		f.powerOffFailed(t)
	}
	return errors.Join(err, f.finishProvision(t))
}

// vacateKeeping frees the machine of a run that has failed. One that was to be installed again still has disks of its
// provision, those that no action names at least: no selector chooses it until it is released.
func (f *Fleet) vacateKeeping(t *transition) error {
	kept := ""
	if t.workflow.Spec.Redeploys != "" {
		kept = dataOfProvision(t.workflow.Project, t.workflow.Spec.Provision)
	}
	err := f.vacate(t)
	if kept != "" {
		t.machine.Status.HoldsData = kept
	}
	return err
}

// recordEnd records what a run that succeeded leaves: a machine that is off, or an installed system that is up.
func (t *transition) recordEnd(now time.Time) {
	m, step := t.machine, t.workflow.Status.Step(trivet.StepFirstBoot)
	switch {
	case workflow.PoweredOff(t.workflow):
		m.Status.Power, m.Status.Reason = "off", "powered off at the end of workflow "+t.workflow.ShortName()
	case step != nil && step.State == trivet.StepDone:
		m.Status.Power, m.Status.Activated = "on", now
	}
}

func (t *transition) quarantine(reason string) error {
	t.machine.Status.Reason = reason
	t.events = append(t.events, workflow.Event{Reason: trivet.ReasonQuarantined, Message: reason, Warning: true})
	return workflow.Change(&t.machine.Status, workflow.Quarantine)
}

// countProvision counts, after the commit, a provision that ended or goes on with another machine, and logs its end.
func (f *Fleet) countProvision(tx *store.Tx, p *trivet.Provision) {
	st := &p.Status
	f.logEnd(tx, p.FullName(), st)
	if f.Metrics != nil {
		tx.AfterCommit(func() { f.Metrics.provision(st) })
	}
}

// finishProvision writes into the provision, where it still exists, how its run ended and how it goes on.
func (f *Fleet) finishProvision(t *transition) error {
	p, err := f.provisionOf(t)
	if p == nil || err != nil {
		return err
	}
	s := &t.workflow.Status
	run := provision.Run{Machine: t.machine, Name: t.workflow.Name, State: s.State, Failure: s.Failure}
	if s.Failure != nil {
		run.Address, run.Kept = f.leaving(t)
		run.Elsewhere = f.isElsewhere(t)
	}
	if p.Status.Race != nil {
		return f.finishRace(t, p, run)
	}
	p.Status = provision.After(&p.Spec, p.Status, run)
	if p.Status.State.Ended() {
		p.Status.Ended, p.Status.Paused = f.now(), nil
	} else {
		t.event(trivet.ReasonSwitched, "provision %s goes on with another machine: alternative %d of %d", p.ShortName(),
			len(p.Status.Spent)+p.Status.Withdrawn, provision.Alternatives(&p.Spec))
	}
	f.countProvision(t.tx, p)
	return f.putProvision(t.tx, p)
}

// provisionOf returns the provision whose latest run is the machine's, or one of its two; nil where there is none.
func (f *Fleet) provisionOf(t *transition) (*trivet.Provision, error) {
	if t.workflow.Spec.Provision == "" { // it releases the machine
		return nil, nil
	}
	p, err := f.Provisions.In(t.tx).Get(trivet.Resolve(t.workflow.Project, t.workflow.Spec.Provision))
	if errors.Is(err, trivet.ErrNotFound) || err == nil &&
		(p.UID != t.workflow.Spec.ProvisionUID || p.Status.Workflow != t.workflow.Name && !races(p, t.machine)) {
		return nil, nil
	}
	return p, err
}
