package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Verify makes an unverified machine available: nothing but an agent runs on it. Another one is left as it is.
func (f *Fleet) Verify(ctx context.Context, machine, why string) error {
	return f.onMachine(ctx, "verify", machine, func(t *transition) error {
		if workflow.StateOf(&t.machine.Status) != trivet.MachineUnverified || t.machine.Status.Intent != nil {
			return errUnchanged // with an intent, it may be off for a moment only
		}
		t.clear(why)
		return nil
	})
}

// Resolve decides about a provision after a recovery, for an operator. It fails with ErrConflict for one that is not
// frozen; but that a machine has it installed may be stated of all that no machine serves.
func (f *Fleet) Resolve(ctx context.Context, name string, req trivet.ResolveRequest, by string) error {
	if req.Decision == trivet.ResolveInstalled {
		return failed("resolve", name, f.installed(ctx, name, req, by))
	}
	return f.resolve(ctx, name, req.Decision)
}

// resolve continues or cancels a provision that a recovery has frozen.
func (f *Fleet) resolve(ctx context.Context, provision, decision string) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		p, err := f.Provisions.In(tx).Get(provision)
		if err != nil {
			return err
		}
		if p.Status.State != trivet.ProvisionFrozen {
			return &trivet.Error{Err: fmt.Errorf("%w: it is %s, and not frozen", trivet.ErrConflict, p.Status.State),
				Hint: "to list what is frozen: trivet recover list"}
		}
		if p.Spec.Count != nil {
			return f.resolveMembers(tx, p, decision)
		}
		if race := p.Status.Race; race != nil {
			const why = "the cluster was recovered"
			err := f.stopSecond(tx, p, race, trivet.ReasonResolved, why)
			if err := errors.Join(err, f.leaveRace(tx, p, why)); err != nil {
				return err
			}
		}
		t, err := f.frozenRun(tx, p)
		if err != nil {
			return err
		}
		if decision == trivet.ResolveCancel {
			return f.cancelFrozen(tx, p, t)
		}
		return f.continueFrozen(tx, p, t)
	})
	if err != nil {
		return &trivet.Error{Op: "resolve", Kind: "Provision", Name: trivet.ShortName(provision), Err: err}
	}
	return nil
}

// frozenRun returns the machine and the frozen run of a provision; nil where it has none.
func (f *Fleet) frozenRun(tx *store.Tx, p *trivet.Provision) (*transition, error) {
	if p.Status.Machine == "" {
		return nil, nil
	}
	t, err := f.load(tx, p.Status.Machine)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil, nil
	}
	if err != nil || t.machine.UID != p.Status.MachineUID || t.workflow == nil {
		return nil, err
	}
	if t.workflow.Name != p.Status.Workflow || !t.active || !t.workflow.Status.Frozen {
		return nil, nil
	}
	return t, nil
}

func (f *Fleet) continueFrozen(tx *store.Tx, p *trivet.Provision, t *transition) error {
	if t == nil { // it waits for a machine
		p.Status.State, p.Status.Reason = trivet.ProvisionPending, ""
		return f.putProvision(tx, p)
	}
	p.Status.State, p.Status.Reason = trivet.ProvisionRunning, ""
	rules := t.ruleMachine()
	// The epoch is new: an agent of before the recovery, which may never find this head, does not count as up.
	st := &t.machine.Status
	rules.AgentUp = f.isAgentIdle(t.machine) && f.AgentHeard != nil && f.AgentHeard(t.machine.Name, st.Epoch)
	t.event(trivet.ReasonResolved, "the operator continues the run that a recovery had frozen")
	if t.run.Unfreeze(rules) {
		f.setIntent(t, "cycle")
	}
	return errors.Join(f.putProvision(tx, p), f.save(t))
}

func (f *Fleet) cancelFrozen(tx *store.Tx, p *trivet.Provision, t *transition) error {
	if t == nil {
		p.Status.State, p.Status.Reason, p.Status.Ended = trivet.ProvisionFailed, "cancelled", f.now()
		f.countProvision(tx, p)
		return f.putProvision(tx, p)
	}
	t.event(trivet.ReasonResolved, "the operator cancels the run that a recovery had frozen")
	if err := f.cancel(t, "cancelled after a recovery"); err != nil {
		return err
	}
	return f.save(t)
}

// vacateFrozen takes the machine from its provision. How far its run has got is not known, so that the machine is left
// as it is. Its agent is not replaced: while that is idle, nothing else runs on the machine.
func (t *transition) vacateFrozen() error {
	st := &t.machine.Status
	st.Provision = ""
	st.Epoch++
	t.dropIntent()
	err := workflow.Change(st, workflow.Unverify)
	t.explainRelease()
	return err
}

// resolveMembers decides about a provision with spec.count: its members are decided about by their own names.
func (f *Fleet) resolveMembers(tx *store.Tx, p *trivet.Provision, decision string) error {
	if decision == trivet.ResolveCancel {
		return &trivet.Error{Err: fmt.Errorf("%w: it has spec.count", trivet.ErrConflict),
			Hint: "delete it, or continue it with a smaller spec.count; frozen members are decided about by their names"}
	}
	p.Status.State = trivet.ProvisionPending
	return f.putCounts(tx, p, p.Status.Members)
}
