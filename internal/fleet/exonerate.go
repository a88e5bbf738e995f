package fleet

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/workflow"
)

// exonerate corrects the failures of the machines that failed before this one with what they share, which is found to
// be at fault now: they leave the quarantine that the failure put them into. It reads and writes at most
// two of them.
func (f *Fleet) exonerate(t *transition, s *shared, why string) error {
	for _, name := range (*s.failures).Machines {
		if name == t.machine.Name {
			continue
		}
		first, err := f.load(t.tx, name)
		if errors.Is(err, trivet.ErrNotFound) {
			continue
		}
		if err == nil && isAccused(first, s.kind) {
			err = f.correct(first, s.kind, why)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isAccused reports whether a machine is in quarantine for the failure of its last run, and not for another reason
// since.
func isAccused(t *transition, kind trivet.Kind) bool {
	if t.workflow == nil || t.machine.Status.State != trivet.MachineQuarantined {
		return false
	}
	failure := t.workflow.Status.Failure
	return failure != nil && failure.Type == trivet.FaultMachine && workflow.SharedBy(failure) == kind &&
		t.machine.Status.Reason == faultOf(t.workflow)
}

// faultOf is the reason of the quarantine of a machine that was at fault for the failure of a run.
func faultOf(w *trivet.Workflow) string {
	failure := w.Status.Failure
	return fmt.Sprintf("%s of %s: %s", failure.Step, w.ShortName(), failure.Cause)
}

// correct makes the failure of a machine's run that of what it shares.
func (f *Fleet) correct(t *transition, kind trivet.Kind, why string) error {
	st, failure := &t.machine.Status, t.workflow.Status.Failure
	workflow.Blame(failure, kind, why)
	if err := workflow.Change(st, workflow.Accept); err != nil {
		return err
	}
	st.Reason = ""
	t.explainRelease()
	st.Reputation = learnt.CorrectFailure(st.Reputation, trivet.FaultMachine, failure.Type, f.now())
	t.event(trivet.ReasonFaultCorrected,
		"it was not at fault for the failure of %s at %s: %s; it leaves quarantine and is %s", t.workflow.ShortName(), failure.Step, why,
		st.State)
	if err := f.correctProvision(t); err != nil {
		return err
	}
	return f.save(t)
}

// correctProvision corrects the failure of a run where its provision has a copy of it.
func (f *Fleet) correctProvision(t *transition) error {
	p, err := f.Provisions.In(t.tx).Get(trivet.Resolve(t.workflow.Project, t.workflow.Spec.Provision))
	if errors.Is(err, trivet.ErrNotFound) || err == nil && p.UID != t.workflow.Spec.ProvisionUID {
		return nil
	}
	if err != nil {
		return err
	}
	st, changed := &p.Status, false
	if i := slices.IndexFunc(st.Spent, func(s trivet.SpentMachine) bool { return s.Workflow == t.workflow.Name }); i >= 0 {
		st.Spent = slices.Clone(st.Spent)
		st.Spent[i].Failure, changed = *t.workflow.Status.Failure, true
	}
	// One that failed while it waited for another machine has a failure of its own, which is of no step.
	if st.Workflow == t.workflow.Name && st.Failure != nil && st.Failure.Step != "" {
		st.Failure, changed = t.workflow.Status.Failure, true
	}
	if !changed {
		return nil
	}
	return f.putProvision(t.tx, p)
}
