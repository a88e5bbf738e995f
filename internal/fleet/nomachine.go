package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// noMachine records that no machine is free for a provision: it waits, or fails where its spec says so, or where the
// network or platform of its last machine was at fault, which to wait for another machine would hide. A search that
// did not read all machines proves nothing, so that it waits for the next one. This head knows the provision, and so
// it knows every machine that was free when the provision was written.
func (f *Fleet) noMachine(ctx context.Context, p *trivet.Provision, why string) error {
	former := p.Status.Failure
	if p.Spec.IfNoMachineOrDefault() != trivet.NoMachineFail && former == nil || !f.searches.ended(p.Spec.Selector) {
		return f.setPending(ctx, p, why)
	}
	if former != nil {
		return f.update(ctx, func(tx *store.Tx) error { return f.endAfter(tx, p.FullName(), why) })
	}
	fault := f.noMachineFault(p)
	return f.update(ctx, func(tx *store.Tx) error { return f.failWaiting(tx, p.FullName(), why, fault) })
}

// noMachineFault returns the type of the failure of a provision that no free machine could serve: that of what one of
// these shares with others and is at fault. Where none is free, the provision asked for too much.
func (f *Fleet) noMachineFault(p *trivet.Provision) trivet.FailureType {
	for m := range f.FreeMachines(p.Spec.Selector, f.searches.new()) {
		if kind, why := f.faultAround(m); why != "" {
			return workflow.FaultOf(kind)
		}
	}
	return trivet.FaultConfiguration
}

// endAfter ends a provision with the failure of its last run, after which no other machine was free.
func (f *Fleet) endAfter(tx *store.Tx, name, why string) error {
	return f.endWaiting(tx, name, func(st *trivet.ProvisionStatus) bool {
		if st.Failure != nil {
			st.Reason = fmt.Sprintf("%s (%s): %s; %s", st.Failure.Step, st.Failure.Type, st.Failure.Cause, why)
		}
		return st.Failure != nil
	})
}

// failWaiting ends a provision that waits for a machine and must not.
func (f *Fleet) failWaiting(tx *store.Tx, name, why string, fault trivet.FailureType) error {
	return f.endWaiting(tx, name, failing(fault, why+" (spec.ifNoMachine is fail)"))
}

// failing returns what gives a provision a failure without a run.
func failing(fault trivet.FailureType, cause string) func(*trivet.ProvisionStatus) bool {
	return func(st *trivet.ProvisionStatus) bool {
		st.Reason, st.Failure = cause, &trivet.Failure{Type: fault, Cause: cause}
		return true
	}
}

// endWaiting ends a provision that waits for a machine as a failure. end writes why, or reports that it goes on
// waiting.
func (f *Fleet) endWaiting(tx *store.Tx, name string, end func(*trivet.ProvisionStatus) bool) error {
	p, err := f.Provisions.In(tx).Get(name)
	if err != nil {
		return err
	}
	st := &p.Status
	if !p.Waits() || !end(st) {
		return errUnchanged
	}
	st.State, st.Ended = trivet.ProvisionFailed, f.now()
	st.WaitsFor, st.WaitsGeneration = "", 0
	f.countProvision(tx, p)
	return errors.Join(f.dropAddress(tx, p), f.putProvision(tx, p))
}
