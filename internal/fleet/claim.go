package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Claim claims a machine for a pending provision and creates its workflow. Where no machine fits, or the template
// cannot be rendered, the provision's status contains the reason.
func (f *Fleet) Claim(ctx context.Context, provision string) error {
	p, err := f.Provisions.Get(provision)
	if err != nil || p.Status.State != "" && p.Status.State != trivet.ProvisionPending {
		return nil
	}
	choice := f.pick(&p.Spec)
	if choice.Machine == "" {
		return f.setPending(ctx, provision, choice.Why)
	}
	err = f.onMachine(ctx, "claim", choice.Machine, func(t *transition) error { return f.claim(t, provision) })
	switch {
	case errors.Is(err, trivet.ErrConflict): // the machine was claimed meanwhile; the caller chooses again
		return err
	case errors.Is(err, trivet.ErrInvalid), errors.Is(err, trivet.ErrNotFound), errors.Is(err, trivet.ErrTooLarge):
		return f.reject(ctx, provision, err)
	}
	return err
}

// pick chooses the machine that is named, or one of the available ones. It reads all others only to report why none
// fits.
func (f *Fleet) pick(spec *trivet.ProvisionSpec) placement.Choice {
	if spec.Machine != "" {
		var named []*trivet.Machine
		if m, err := f.Machines.GetShared(spec.Machine); err == nil {
			named = append(named, m)
		}
		return placement.Pick(named, spec, nil)
	}
	available := f.Machines.SharedBy(state.ByState, string(trivet.MachineAvailable))
	if choice := placement.Pick(available, spec, nil); choice.Machine != "" {
		return choice
	}
	return placement.Pick(slices.Collect(f.Machines.AllShared()), spec, nil)
}

func (f *Fleet) claim(t *transition, provision string) error {
	m := t.machine
	p, err := f.Provisions.In(t.tx).Get(provision)
	if err != nil {
		return err
	}
	if p.Status.State != "" && p.Status.State != trivet.ProvisionPending {
		return errUnchanged
	}
	if (m.Status.State != trivet.MachineAvailable || m.Spec.Cordoned) && !faultinject.MachineTwice {
		return fmt.Errorf("%w: the machine is %s", trivet.ErrConflict, m.Status.State)
	}
	w, limits, err := f.render(t, p)
	if err != nil {
		return err
	}
	if _, err := f.Workflows.In(t.tx).Get(w.Name); err == nil {
		return fmt.Errorf("%w: workflow %s exists already", trivet.ErrConflict, w.Name)
	}
	f.startRun(t, w, limits)
	m.Status.Provision, m.Status.Workflow = p.Name, w.Name
	t.event(trivet.ReasonClaimed, "claimed by provision %s for template %s", p.Name, p.Spec.Template)
	st := &p.Status
	st.State, st.Reason, st.Machine, st.Workflow = trivet.ProvisionRunning, "", m.Name, w.Name
	st.Attempts++
	if st.Started.IsZero() {
		st.Started = f.now()
	}
	return f.Provisions.In(t.tx).Put(p)
}

// startRun starts a run on the machine that is claimed for it.
func (f *Fleet) startRun(t *transition, w *trivet.Workflow, limits map[string]trivet.Limit) {
	m := t.machine
	t.setRun(w, f.now())
	rules := t.ruleMachine()
	rules.AgentUp = m.Status.AgentKey != "" && f.AgentUp != nil && f.AgentUp(m.Name, m.Status.Epoch)
	t.run.Start(rules, limits, t.site.Limits)
	m.Status.State, m.Status.Reason = trivet.MachineClaimed, ""
	if rules.Power && !rules.AgentUp {
		f.setIntent(t, "cycle")
	}
}

// setPending writes into a provision what it waits for.
func (f *Fleet) setPending(ctx context.Context, provision, why string) error {
	return f.onPending(ctx, provision, func(p *trivet.Provision) bool {
		same := p.Status.State == trivet.ProvisionPending && p.Status.Reason == why
		p.Status.State, p.Status.Reason = trivet.ProvisionPending, why
		return !same
	})
}

// reject ends a provision that no machine could serve.
func (f *Fleet) reject(ctx context.Context, provision string, cause error) error {
	return f.onPending(ctx, provision, func(p *trivet.Provision) bool {
		p.Status.State, p.Status.Reason, p.Status.Ended = trivet.ProvisionFailed, cause.Error(), f.now()
		p.Status.Failure = &trivet.Failure{Type: trivet.FaultConfiguration, Cause: cause.Error()}
		return true
	})
}

// onPending changes a provision that has no machine yet.
func (f *Fleet) onPending(ctx context.Context, name string, do func(*trivet.Provision) (changed bool)) error {
	return f.update(ctx, func(tx *store.Tx) error {
		p, err := f.Provisions.In(tx).Get(name)
		if err != nil {
			return err
		}
		if p.Status.State != "" && p.Status.State != trivet.ProvisionPending || !do(p) {
			return errUnchanged
		}
		return f.Provisions.In(tx).Put(p)
	})
}
