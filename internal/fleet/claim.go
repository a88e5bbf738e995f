package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Claim claims a machine for a provision that waits for one, and creates its workflow. Where no machine fits, or the
// template cannot be rendered, the provision's status contains the reason. Where another provision that waits for the
// chosen machine comes before it, that one gets it, and Claim fails with ErrConflict, as it does where the machine was
// claimed or deleted meanwhile: the caller chooses again.
func (f *Fleet) Claim(ctx context.Context, name string) error {
	p, err := f.Provisions.GetShared(name)
	if err != nil {
		return nil
	}
	_, err = f.consider(ctx, p)
	return err
}

// consider claims a machine for a provision. why: there is none.
func (f *Fleet) consider(ctx context.Context, p *trivet.Provision) (why string, err error) {
	if provision.WantsSecond(p) {
		return "", f.race(ctx, p)
	}
	if !p.Waits() {
		return "", nil
	}
	if p.Status.WaitsFor != "" {
		return "", f.stopWaiting(ctx, p)
	}
	for {
		m, why := f.choose(p)
		if m == nil {
			return why, f.noMachine(ctx, p, why)
		}
		err = f.offer(ctx, m, p)
		// What the claim has shown the provision to need, the next search knows.
		if lack := (*lackError)(nil); !errors.As(err, &lack) || lacking(m, f.needsOf(p)) == "" {
			return "", err
		}
	}
}

// Offer gives a machine that can be claimed to the first provision that waits for it.
func (f *Fleet) Offer(ctx context.Context, machine string) error {
	m, err := f.Machines.GetShared(machine)
	if err != nil || !placement.Free(m) {
		return nil
	}
	return f.offer(ctx, m, nil)
}

// offer offers a machine to the provisions that wait for it, in turns of their projects, until one has claimed it.
// chosen is the provision that the machine was chosen for, after which it is not offered; nil: none.
func (f *Fleet) offer(ctx context.Context, m *trivet.Machine, chosen *trivet.Provision) error {
	fail := func(err error) error {
		return &trivet.Error{Op: "claim", Kind: "Machine", Name: m.Name, Err: err}
	}
	address, err := f.propose(m.Name)
	if errors.Is(err, trivet.ErrUnavailable) {
		return fail(err)
	}
	waiting := f.WaitingFor
	if f.avoided(m) != "" {
		waiting = f.NamingFor
	}
	for p := range waiting(m) {
		if provision.Spent(&p.Status, m) || lacking(m, f.needsOf(p)) != "" {
			continue
		}
		if err != nil {
			return f.setPending(ctx, cmp.Or(chosen, p), err.Error())
		}
		claimed, err := f.claimFor(ctx, m.Name, p, address)
		lack, isChosen := (*lackError)(nil), chosen != nil && p.FullName() == chosen.FullName()
		switch {
		case errors.As(err, &lack) && !isChosen:
		case err != nil:
			return fail(err)
		case claimed && chosen != nil && !isChosen:
			return fail(fmt.Errorf("%w: another provision has claimed the machine", trivet.ErrConflict))
		case claimed || isChosen:
			return nil
		}
	}
	return nil
}

// choose returns a machine that a provision may claim, or why there is none.
func (f *Fleet) choose(p *trivet.Provision) (m *trivet.Machine, why string) {
	spec := &p.Spec
	if spec.Machine != "" {
		named := func(yield func(*trivet.Machine) bool) {
			if m, err := f.Machines.GetShared(spec.Machine); err == nil {
				yield(m)
			}
		}
		if m = placement.First(named, spec, nil); m == nil {
			why = placement.Why(named, spec, nil) + f.renamedText(spec.Machine)
		}
		return m, why
	}
	needs := f.needsOf(p)
	avoided := func(m *trivet.Machine) string {
		if r := p.Status.Replaced; r != nil && r.MachineUID == m.UID {
			return "not used, as it was replaced"
		}
		if provision.Spent(&p.Status, m) {
			return "not used, as it has failed"
		}
		if why := lacking(m, needs); why != "" {
			return why
		}
		if last := p.Status.Failure; last != nil && last.Type == trivet.FaultNetwork && f.networkName(m) == "" {
			return "not used, as it may be in the network that is at fault"
		}
		return f.avoided(m)
	}
	worse := f.reputations(p)
	m = f.searches.find(spec.Selector, func(s *state.Search) *trivet.Machine {
		return placement.Preferred(f.FreeMachines(spec.Selector, s), spec, avoided, worse)
	})
	if m != nil {
		return m, ""
	}
	return nil, placement.Why(func(yield func(*trivet.Machine) bool) {
		for _, list := range []func(map[string]string, *state.Search) iter.Seq[*trivet.Machine]{
			f.FreeMachines, f.TakenMachines} {
			for m := range list(spec.Selector, f.searches.new()) {
				if !yield(m) {
					return
				}
			}
		}
	}, spec, avoided)
}

// claimFor claims a machine for a provision, or writes why it cannot. claimed: it has.
func (f *Fleet) claimFor(ctx context.Context, machine string, p *trivet.Provision,
	address *addressing.Proposal) (claimed bool, err error) {
	err = f.update(ctx, func(tx *store.Tx) error {
		claimed, err = f.claimOrReject(tx, machine, p.FullName(), address)
		return err
	})
	if lack := (*lackError)(nil); errors.As(err, &lack) {
		f.needs.note(p, lack)
	}
	return claimed && err == nil, err
}

// claimOrReject claims the machine, or ends a provision that no machine could serve.
func (f *Fleet) claimOrReject(tx *store.Tx, machine, name string,
	address *addressing.Proposal) (claimed bool, err error) {
	p, err := f.Provisions.In(tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !p.Waits() {
		return false, errUnchanged
	}
	if err != nil {
		return false, err
	}
	t, err := f.load(tx, machine)
	if errors.Is(err, trivet.ErrNotFound) {
		return false, fmt.Errorf("%w: the machine was deleted", trivet.ErrConflict)
	}
	if err != nil {
		return false, err
	}
	err = f.claim(t, p, address)
	if errors.Is(err, errHeldBack) {
		return false, errUnchanged
	}
	if fault := (*faultError)(nil); errors.As(err, &fault) {
		if p.Spec.IfNoMachineOrDefault() == trivet.NoMachineFail {
			return false, f.failWaiting(tx, name, err.Error(), workflow.FaultOf(fault.kind))
		}
		return false, f.wait(tx, name, err.Error(), fault.waitsFor())
	}
	if lack := (*lackError)(nil); errors.As(err, &lack) && p.Spec.Machine != "" {
		return false, f.reject(tx, name, fmt.Errorf("%w; use another machine or another image", err))
	}
	if errors.Is(err, trivet.ErrInvalid) || errors.Is(err, trivet.ErrNotFound) || errors.Is(err, trivet.ErrTooLarge) {
		return false, f.reject(tx, name, err)
	}
	if err != nil {
		return false, err
	}
	return true, f.save(t)
}

// claim starts a run of the provision on the machine.
func (f *Fleet) claim(t *transition, p *trivet.Provision, address *addressing.Proposal) error {
	m := t.machine
	if provision.Spent(&p.Status, m) {
		return fmt.Errorf("%w: the provision does not use the machine again", trivet.ErrConflict)
	}
	if h := m.Status.HoldsData; h != "" && p.Spec.Machine == "" && h != dataOfProvision(p.Project, p.Name) {
		return fmt.Errorf("%w: the disks of the machine hold data", trivet.ErrConflict)
	}
	if err := claimable(m); err != nil {
		return err
	}
	in, network, err := f.begin(t, p, address)
	if err != nil {
		return err
	}
	if err := f.checkShared(t, p); err != nil {
		return err
	}
	return f.assign(t, p, in, network)
}

// begin renders the provision's template for the machine and starts the run.
func (f *Fleet) begin(t *transition, p *trivet.Provision, address *addressing.Proposal) (in arrival,
	network *trivet.RunNetwork, err error) {
	if in, err = f.arriving(t, p, address); err != nil {
		return in, nil, err
	}
	if network, err = f.networkFor(t, in, address); err != nil {
		return in, nil, err
	}
	w, limits, err := f.render(t, p, network)
	if err != nil {
		return in, nil, err
	}
	return in, network, f.startRun(t, w, limits)
}

// assign makes the run that was started on the machine that of the provision, and the address that moves to it its own.
func (f *Fleet) assign(t *transition, p *trivet.Provision, in arrival, network *trivet.RunNetwork) error {
	m, w := t.machine, t.workflow
	if err := f.checkNew(t); err != nil {
		return err
	}
	m.Status.Provision, m.Status.Workflow = p.ShortName(), w.ShortName()
	t.event(trivet.ReasonClaimed, "claimed by provision %s for template %s%s", p.ShortName(), p.Spec.Template,
		insteadOf(&p.Status))
	st := &p.Status
	st.State, st.Reason, st.Failure, st.Workflow = trivet.ProvisionRunning, "", nil, w.Name
	st.WaitsFor, st.WaitsGeneration = "", 0
	st.Machine, st.MachineUID, st.Address = m.Name, m.UID, plainAddress(network)
	st.Attempts++
	t.explainAddress(p, in)
	if st.Started.IsZero() {
		st.Started = f.now()
	}
	return errors.Join(f.arrive(t, in), f.putProvision(t.tx, p))
}

// insteadOf names the machine that the claimed one replaces.
func insteadOf(st *trivet.ProvisionStatus) string {
	switch {
	case st.Failure != nil:
		return fmt.Sprintf(", after its failure at %s", st.Failure.Step)
	case len(st.Spent) == 0 && st.Replaced != nil:
		return fmt.Sprintf(", instead of %s, which %s replaced", st.Replaced.Machine, st.Replaced.By)
	case len(st.Spent) == 0:
		return ""
	}
	last := st.Spent[len(st.Spent)-1]
	return fmt.Sprintf(", instead of %s, which failed at %s", last.Machine, last.Failure.Step)
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

// startRun starts a run on the machine that is claimed for it. The idle agent that is up in the machine is granted the
// run under a new epoch, and reads it at its next sync.
func (f *Fleet) startRun(t *transition, w *trivet.Workflow, limits map[string]trivet.Limit) error {
	m := t.machine
	t.setRun(w, f.now())
	rules := t.ruleMachine()
	rules.AgentUp = f.isAgentIdle(m)
	t.run.Start(rules, limits, t.site.Limits)
	f.expect(t)
	m.Status.Reason = ""
	switch {
	case rules.AgentUp:
		m.Status.Epoch++
		_, err := t.grant()
		return err
	case rules.Power:
		f.setIntent(t, "cycle")
	}
	return nil
}
