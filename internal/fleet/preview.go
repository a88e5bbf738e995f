package fleet

import (
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Preview starts the run of a provision on the machine that it names, as a claim does, in a transaction that must not be
// committed. It returns the run, and why the provision would wait for the machine now; empty where it would not.
func (f *Fleet) Preview(tx *store.Tx, p *trivet.Provision) (w *trivet.Workflow, waits string, err error) {
	t, err := f.load(tx, p.Spec.Machine)
	if err != nil {
		return nil, "", err
	}
	if m, why := f.choose(p); m == nil {
		waits = why
	}
	address, err := f.propose(p.Spec.Machine)
	if errors.Is(err, trivet.ErrUnavailable) {
		return nil, "", err
	}
	if err != nil && waits == "" {
		waits = err.Error()
	}
	t.machine.Status.State = trivet.MachineClaimed
	if _, _, err := f.begin(t, p, address); err != nil {
		return nil, "", err
	}
	return t.workflow, waits, f.checkNew(t)
}
