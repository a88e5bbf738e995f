package fleet

import (
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/store"
)

// Preview is the run that a provision would start on the machine that it names.
type Preview struct {
	// Waits is why the provision would wait for the machine now; empty where it would not.
	Waits   string
	fleet   *Fleet
	address *addressing.Proposal
}

// Preview does what precedes the transaction of a claim.
func (f *Fleet) Preview(p *trivet.Provision) (*Preview, error) {
	v := &Preview{fleet: f}
	if m, why := f.choose(p); m == nil {
		v.Waits = why
	}
	address, err := f.propose(p.Spec.Machine)
	if errors.Is(err, trivet.ErrUnavailable) {
		return nil, err
	}
	if err != nil && v.Waits == "" {
		v.Waits = err.Error()
	}
	v.address = address
	return v, nil
}

// Run starts the run as a claim does, whatever the state of the machine, in a transaction that must not be committed.
func (v *Preview) Run(tx *store.Tx, p *trivet.Provision) (*trivet.Workflow, error) {
	t, err := v.fleet.load(tx, p.Spec.Machine)
	if err != nil {
		return nil, err
	}
	t.machine.Status.State = trivet.MachineClaimed
	if _, _, err := v.fleet.begin(t, p, v.address); err != nil {
		return nil, err
	}
	return t.workflow, v.fleet.checkNew(t)
}
