package fleet

import (
	"context"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
	"github.com/trivet-project/trivet/internal/provision"
)

// What was learnt of earlier runs is a preference: no decision that must hold rests on it, so that it is as this head
// knows it and is not compared.

// book returns what was learnt, as this head knows it.
func (f *Fleet) book() *learnt.Book {
	if f.Learnt == nil {
		return &learnt.Book{}
	}
	return f.Learnt()
}

// Models returns what was learnt of each model, all machines first.
func (f *Fleet) Models() []trivet.Model { return f.book().Report() }

// expect writes into a run that was started how long its steps took before.
func (f *Fleet) expect(t *transition) {
	after := t.site.LateAfterOrDefault().D()
	t.workflow.Spec.Times = f.book().Times(learnt.ModelOf(t.machine.Status.Inventory), t.workflow, after)
}

// reputations returns how much a machine is worse than another one for a provision; 0: no machine is better. Its rack
// matters more than its reputation.
func (f *Fleet) reputations(p *trivet.Provision) func(*trivet.Machine) float64 {
	const sameRack, most = 1000, 100
	now, book, avoided, other := f.now(), f.book(), map[string]bool{}, f.firstMachine(p)
	return func(m *trivet.Machine) float64 {
		worse := min(learnt.Faults(m.Status.Reputation, now), most)
		model := learnt.ModelOf(m.Status.Inventory)
		if _, ok := avoided[model]; !ok {
			avoided[model] = book.Avoids(model)
		}
		if avoided[model] {
			worse++
		}
		if !provision.Elsewhere(&p.Status, m) || other != nil && other.Spec.Rack == m.Spec.Rack {
			worse += sameRack
		}
		return worse
	}
}

// firstMachine returns the machine that a provision has, beside which another one is chosen; nil where it has none.
func (f *Fleet) firstMachine(p *trivet.Provision) *trivet.Machine {
	m, err := f.Machines.GetShared(p.Status.Machine)
	if err != nil {
		return nil
	}
	return m
}

// countFailure adds the failure of the machine's run to its reputation.
func (f *Fleet) countFailure(t *transition) {
	st := &t.machine.Status
	st.Reputation = learnt.AddFailure(st.Reputation, t.workflow.Status.Failure.Type, f.now())
}

// Forget resets the reputation of a machine, as after a repair.
func (f *Fleet) Forget(ctx context.Context, machine string) error {
	return f.onMachine(ctx, "forget", machine, func(t *transition) error {
		st := &t.machine.Status
		if st.Reputation == nil {
			return errUnchanged
		}
		st.Reputation = nil
		t.event(trivet.ReasonForgotten, "its reputation was reset by the operator")
		return nil
	})
}
