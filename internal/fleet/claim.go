package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Claim claims a machine for a pending provision and creates its workflow. Where no machine fits, or the template
// cannot be rendered, the provision's status contains the reason. It fails with ErrConflict where the chosen machine
// was claimed or deleted meanwhile: the caller chooses again.
func (f *Fleet) Claim(ctx context.Context, provision string) error {
	p, err := f.Provisions.Get(provision)
	if err != nil || !isPending(p) {
		return nil
	}
	choice := f.pick(&p.Spec)
	if choice.Machine == "" {
		return f.setPending(ctx, provision, choice.Why)
	}
	address, err := f.propose(choice.Machine)
	if err != nil && !errors.Is(err, trivet.ErrUnavailable) {
		return f.setPending(ctx, provision, err.Error())
	}
	if err == nil {
		err = f.update(ctx, func(tx *store.Tx) error { return f.claimOrReject(tx, choice.Machine, provision, address) })
	}
	if err != nil {
		return &trivet.Error{Op: "claim", Kind: "Machine", Name: choice.Machine, Err: err}
	}
	return nil
}

func isPending(p *trivet.Provision) bool {
	return p.Status.State == "" || p.Status.State == trivet.ProvisionPending
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
	avoid := f.avoided()
	available := f.Machines.SharedBy(state.ByState, string(trivet.MachineAvailable))
	if choice := placement.Pick(available, spec, avoid); choice.Machine != "" {
		return choice
	}
	return placement.Pick(slices.Collect(f.Machines.AllShared()), spec, avoid)
}

// claimOrReject claims the machine, or ends a provision that no machine could serve.
func (f *Fleet) claimOrReject(tx *store.Tx, machine, provision string, address *addressing.Proposal) error {
	p, err := f.Provisions.In(tx).Get(provision)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !isPending(p) {
		return errUnchanged
	}
	if err != nil {
		return err
	}
	t, err := f.load(tx, machine)
	if errors.Is(err, trivet.ErrNotFound) {
		return fmt.Errorf("%w: the machine was deleted", trivet.ErrConflict)
	}
	if err != nil {
		return err
	}
	err = f.claim(t, p, address)
	if errors.Is(err, errAtFault) {
		return f.wait(tx, provision, err.Error())
	}
	if errors.Is(err, trivet.ErrInvalid) || errors.Is(err, trivet.ErrNotFound) || errors.Is(err, trivet.ErrTooLarge) {
		return f.reject(tx, provision, err)
	}
	if err != nil {
		return err
	}
	return f.save(t)
}

// claim starts a run of the provision on the machine.
func (f *Fleet) claim(t *transition, p *trivet.Provision, address *addressing.Proposal) error {
	m := t.machine
	if err := claimable(m); err != nil {
		return err
	}
	network, err := f.networkFor(t, address)
	if err != nil {
		return err
	}
	w, limits, err := f.render(t, p, network)
	if err != nil {
		return err
	}
	f.startRun(t, w, limits)
	if err := errors.Join(workflow.CheckSize(w), f.checkShared(t, p)); err != nil {
		return err
	}
	if err := f.Workflows.In(t.tx).Create(w); errors.Is(err, trivet.ErrExists) {
		return fmt.Errorf("%w: workflow %s exists already", trivet.ErrConflict, w.ShortName())
	} else if err != nil {
		return err
	}
	m.Status.Provision, m.Status.Workflow = p.ShortName(), w.ShortName()
	t.event(trivet.ReasonClaimed, "claimed by provision %s for template %s", p.ShortName(), p.Spec.Template)
	st := &p.Status
	st.State, st.Reason, st.Workflow = trivet.ProvisionRunning, "", w.Name
	st.Machine, st.MachineUID = m.Name, m.UID
	st.Attempts++
	if st.Started.IsZero() {
		st.Started = f.now()
	}
	return f.Provisions.In(t.tx).Put(p)
}

// errAtFault: what the machine shares with others is at fault. The provision waits.
var errAtFault = errors.New("no machine is used for a provision by selector")

// checkShared refuses a provision by selector where what machines share is at fault. One that names its machine tries
// it: that it succeeds is how others know that the fault is gone.
func (f *Fleet) checkShared(t *transition, p *trivet.Provision) error {
	if p.Spec.Machine != "" {
		return nil
	}
	why, err := f.unusable(t)
	if err == nil && why != "" {
		err = fmt.Errorf("%s: %w until it is changed, or one that names a machine gets on with it", why, errAtFault)
	}
	return err
}

// claimable changes the state of a machine that may be claimed.
func claimable(m *trivet.Machine) error {
	switch {
	case faultinject.MachineTwice:
		m.Status.State = trivet.MachineClaimed
		return nil
	case m.Spec.Cordoned:
		return fmt.Errorf("%w: the machine is cordoned", trivet.ErrConflict)
	}
	return workflow.Change(&m.Status, workflow.Claim)
}

// startRun starts a run on the machine that is claimed for it.
func (f *Fleet) startRun(t *transition, w *trivet.Workflow, limits map[string]trivet.Limit) {
	m := t.machine
	t.setRun(w, f.now())
	rules := t.ruleMachine()
	rules.AgentUp = m.Status.AgentKey != "" && f.AgentUp != nil && f.AgentUp(m.Name, m.Status.Epoch)
	t.run.Start(rules, limits, t.site.Limits)
	m.Status.Reason = ""
	if rules.Power && !rules.AgentUp {
		f.setIntent(t, "cycle")
	}
}

// setPending writes into a provision what it waits for.
func (f *Fleet) setPending(ctx context.Context, provision, why string) error {
	return f.update(ctx, func(tx *store.Tx) error { return f.wait(tx, provision, why) })
}

func (f *Fleet) wait(tx *store.Tx, provision, why string) error {
	p, err := f.Provisions.In(tx).Get(provision)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !isPending(p) {
		return errUnchanged
	}
	if err != nil {
		return err
	}
	p.Status.State, p.Status.Reason = trivet.ProvisionPending, why
	return f.Provisions.In(tx).Put(p)
}

// reject ends a provision that no machine could serve.
func (f *Fleet) reject(tx *store.Tx, provision string, cause error) error {
	p, err := f.Provisions.In(tx).Get(provision)
	if err != nil {
		return err
	}
	p.Status.State, p.Status.Reason, p.Status.Ended = trivet.ProvisionFailed, cause.Error(), f.now()
	p.Status.Failure = &trivet.Failure{Type: trivet.FaultConfiguration, Cause: cause.Error()}
	return f.Provisions.In(tx).Put(p)
}
