package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Retry gives a provision that failed another run, for an operator: it waits for a machine as at first, or claims the
// machine of its last run in the same transaction, from the beginning or from an action on.
func (f *Fleet) Retry(ctx context.Context, name string, req trivet.RetryRequest, by string) error {
	address, err := f.proposeFor(name)
	if err != nil {
		return failed("retry", name, err)
	}
	err = f.update(ctx, func(tx *store.Tx) error {
		p, err := f.Provisions.In(tx).Get(name)
		if err != nil {
			return err
		}
		if p.Spec.Count != nil {
			return errHasMembers(p)
		}
		if p.Status, err = provision.Retry(p.Status, p.FullName(), by); err != nil {
			return err
		}
		if req.Step != "" || req.SameMachine {
			return f.retryHere(tx, p, address, req, by)
		}
		if req.Accept {
			if err := f.acceptLast(tx, p); err != nil {
				return err
			}
		}
		p.Status.Machine, p.Status.MachineUID = "", ""
		return f.putProvision(tx, p)
	})
	return failed("retry", name, err)
}

// proposeFor returns an address for the machine that a provision used last, where that has none.
func (f *Fleet) proposeFor(name string) (*addressing.Proposal, error) {
	return f.propose(f.machineOf(name))
}

// machineOf returns the name of the machine that a provision used last, as far as this head knows.
func (f *Fleet) machineOf(provision string) string {
	p, err := f.Provisions.GetShared(provision)
	if err != nil {
		return "" // the transaction finds out
	}
	return p.Status.Machine
}

// lastMachine reads the machine that a provision used last.
func (f *Fleet) lastMachine(tx *store.Tx, p *trivet.Provision) (*transition, error) {
	gone := fmt.Errorf("%w: the machine of its last run is not known", trivet.ErrConflict)
	if p.Status.Machine == "" {
		return nil, gone
	}
	t, err := f.load(tx, p.Status.Machine)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && t.machine.UID != p.Status.MachineUID {
		return nil, gone
	}
	return t, err
}

// acceptLast accepts the machine that a provision used last.
func (f *Fleet) acceptLast(tx *store.Tx, p *trivet.Provision) error {
	t, err := f.lastMachine(tx, p)
	if err != nil {
		return err
	}
	if changed, err := f.accept(t); err != nil || !changed {
		return err
	}
	return f.save(t)
}

// retryHere claims the machine of the last run for another one. The operator has named it by that, so that what it
// shares with others may be at fault, and others that wait for a machine are not asked.
func (f *Fleet) retryHere(tx *store.Tx, p *trivet.Provision, address *addressing.Proposal, req trivet.RetryRequest,
	by string) error {
	t, err := f.lastMachine(tx, p)
	if err != nil {
		return err
	}
	if req.Accept {
		if _, err := f.accept(t); err != nil {
			return err
		}
	}
	if err := claimable(t.machine); err != nil {
		return errNotFree(t.machine, err)
	}
	network, err := f.networkFor(t, arrival{}, address)
	if err != nil {
		return err
	}
	from, next := "the beginning", f.render
	if req.Step != "" {
		from, next = req.Step, f.continueAt(req.Step)
	}
	w, limits, err := next(t, p, network)
	if err != nil {
		return err
	}
	t.event(trivet.ReasonRetried, "%s retried provision %s on this machine, from %s", by, p.ShortName(), from)
	if err := errors.Join(f.startRun(t, w, limits), f.assign(t, p, arrival{}, network)); err != nil {
		return err
	}
	return f.save(t)
}

// errNotFree says what to do about a machine that cannot be claimed again.
func errNotFree(m *trivet.Machine, err error) error {
	hint := "retry it on another machine: without --step and --same-machine"
	switch m.Status.State {
	case trivet.MachineQuarantined, trivet.MachineReleasing:
		hint = "to use it nevertheless, add --accept; see why: trivet why " + m.Name
	case trivet.MachineAvailable:
		hint = hintUncordon(m)
	}
	return &trivet.Error{Op: "claim", Kind: "Machine", Name: m.Name, Err: err, Hint: hint}
}

func hintUncordon(m *trivet.Machine) string {
	return "uncordon it: trivet patch machine " + m.Name + ` '{"spec": {"cordoned": false}}'`
}

// continueAt returns what makes the workflow that continues the provision's last one from an action on. Its actions
// are those of the last one, whatever the template has now.
func (f *Fleet) continueAt(action string) func(*transition, *trivet.Provision, *trivet.RunNetwork) (*trivet.Workflow,
	map[string]trivet.Limit, error) {
	return func(t *transition, p *trivet.Provision, _ *trivet.RunNetwork) (*trivet.Workflow, map[string]trivet.Limit,
		error) {
		former := t.workflow
		if former == nil || former.FullName() != trivet.FullName(p.Project, p.Status.Workflow) ||
			former.Spec.ProvisionUID != p.UID {
			return nil, nil, &trivet.Error{Op: "retry", Kind: "Workflow", Name: p.Status.Workflow,
				Err: fmt.Errorf("%w: it is not the last run of machine %s any more, whose disks may have changed",
					trivet.ErrConflict, t.machine.Name),
				Hint: "retry it from the beginning: without --step"}
		}
		done, err := workflow.Continue(former, action)
		if err != nil {
			return nil, nil, err
		}
		name, err := f.workflowName(t.tx, p)
		if err != nil {
			return nil, nil, err
		}
		w := &trivet.Workflow{Meta: trivet.Meta{Kind: "Workflow", Project: p.Project, Name: name, Labels: p.Labels},
			Spec: former.Spec, Status: trivet.WorkflowStatus{Steps: done}}
		w.Spec.Continues, w.Spec.Attempt, w.Spec.Epoch = former.Name, p.Status.Attempts+1, t.machine.Status.Epoch
		limits, err := f.limitsOf(t.tx, p)
		return w, limits, err
	}
}

// limitsOf returns the deadlines of the boot steps that a provision's template has.
func (f *Fleet) limitsOf(tx *store.Tx, p *trivet.Provision) (map[string]trivet.Limit, error) {
	template, err := f.Templates.In(tx).Get(trivet.Resolve(p.Project, p.Spec.Template))
	if errors.Is(err, trivet.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return template.Spec.Limits, nil
}
