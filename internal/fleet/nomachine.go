package fleet

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// noMachine records that no machine is free for a provision: it waits, or fails where its spec says so. A search that
// did not read all machines proves nothing, so that it waits for the next one. This head knows the provision, and so
// it knows every machine that was free when the provision was written.
func (f *Fleet) noMachine(ctx context.Context, p *trivet.Provision, why string) error {
	if p.Spec.IfNoMachine != trivet.NoMachineFail || !f.searches.ended(p.Spec.Selector) {
		return f.setPending(ctx, p, why)
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

// failWaiting ends a provision that waits for a machine and must not.
func (f *Fleet) failWaiting(tx *store.Tx, name, why string, fault trivet.FailureType) error {
	p, err := f.Provisions.In(tx).Get(name)
	if err != nil {
		return err
	}
	if !p.Waits() {
		return errUnchanged
	}
	st := &p.Status
	st.State, st.Reason, st.Ended = trivet.ProvisionFailed, why+" (spec.ifNoMachine is fail)", f.now()
	st.WaitsFor, st.WaitsGeneration = "", 0
	st.Failure = &trivet.Failure{Type: fault, Cause: st.Reason}
	f.countProvision(tx, st)
	return errors.Join(f.dropAddress(tx, p), f.putProvision(tx, p))
}
