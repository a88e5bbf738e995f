package fleet

import (
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/store"
)

// Preview is the run that a provision would start on the machine that it names.
type Preview struct {
	// Waits is why the provision would wait now: for the state of the machine, or for an address. It is empty also where
	// only the claim would show that: other provisions may come before.
	Waits string
	// Network is that of the machine's boot port, once the run was rendered; nil: it is not known.
	Network *trivet.RunNetwork
	fleet   *Fleet
	address *addressing.Proposal
	refused error // why there is no address
}

// Preview does what precedes the transaction of a claim, and keeps no address for the machine.
func (f *Fleet) Preview(p *trivet.Provision) (*Preview, error) {
	v := &Preview{fleet: f}
	if m, why := f.choose(p); m == nil {
		v.Waits = why
	}
	v.address, v.refused = f.proposeBy(f.Predict, p.Spec.Machine)
	if errors.Is(v.refused, trivet.ErrUnavailable) {
		return nil, v.refused
	}
	if v.refused != nil && v.Waits == "" {
		v.Waits = v.refused.Error()
	}
	return v, nil
}

// Address returns the address of the machine's boot port, once the run was rendered; empty: it is not known.
func (v *Preview) Address() string { return plainAddress(v.Network) }

// Run starts the run as a claim does, whatever the state of the machine, in a transaction that must not be committed.
func (v *Preview) Run(tx *store.Tx, p *trivet.Provision) (*trivet.Workflow, error) {
	t, err := v.fleet.load(tx, p.Spec.Machine)
	if err != nil {
		return nil, err
	}
	t.machine.Status.State = trivet.MachineClaimed
	if _, v.Network, err = v.fleet.begin(t, p, v.address); err != nil {
		return nil, v.explain(err)
	}
	return t.workflow, v.fleet.checkNew(t)
}

// explain adds to what is wrong why there is no address: the template may need one.
func (v *Preview) explain(err error) error {
	if v.refused == nil || !errors.Is(err, trivet.ErrInvalid) {
		return err
	}
	return errors.Join(err, &trivet.FieldError{Field: "spec.machine",
		Problem: fmt.Sprintf("names one that gets no address now: %v", v.refused)})
}
