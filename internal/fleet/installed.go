package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// After a recovery from older records an operator may know that a machine was installed since, and for which provision.
// By that statement it serves the provision: only records are changed. What it runs keeps no part in the run: its seed
// has a token of a run that the records do not have, or a lower epoch.

// installed makes a machine serve a provision as it is.
func (f *Fleet) installed(ctx context.Context, name string, req trivet.ResolveRequest, by string) error {
	address, err := f.statedAddress(name, req)
	if err != nil {
		return err
	}
	err = f.update(ctx, func(tx *store.Tx) error {
		p, err := f.Provisions.In(tx).Get(name)
		if err != nil {
			return err
		}
		if p.Spec.Count != nil {
			return errHasMembers(p)
		}
		since, err := f.recovered(tx)
		if err := errors.Join(err, provision.CheckInstalled(p)); err != nil {
			return err
		}
		t, err := f.loadInstalled(tx, p, req.Machine, since)
		if err != nil {
			return err
		}
		if err := f.stopOthers(tx, p, t, by); err != nil {
			return err
		}
		return f.adopt(t, p, address, req.Address, by)
	})
	return f.RenamedTo("resolve", req.Machine, err)
}

// recovered returns when the cluster was recovered, and refuses what is only decided after that.
func (f *Fleet) recovered(tx *store.Tx) (at time.Time, err error) {
	site, err := f.Sites.In(tx).Get(trivet.SiteName)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return at, err
	}
	if err != nil || site.Status.Recovered == nil {
		return at, fmt.Errorf("%w: this cluster was never recovered: a machine is installed by its run only",
			trivet.ErrConflict)
	}
	return site.Status.Recovered.Time, nil
}

// statedAddress returns the address that the machine has as the operator states, or the one that DHCP would give it.
func (f *Fleet) statedAddress(name string, req trivet.ResolveRequest) (*addressing.Proposal, error) {
	p, err := f.Provisions.GetShared(name)
	if err != nil {
		return nil, nil // the transaction finds out
	}
	machine := cmp.Or(req.Machine, p.Status.Machine, p.Spec.Machine)
	m, err := f.Machines.GetShared(machine)
	if err != nil || !req.Address.IsValid() {
		address, err := f.proposeBy(f.Predict, machine)
		if errors.Is(err, trivet.ErrUnavailable) { // no address is free, and none is assigned
			err = nil
		}
		return address, err
	}
	if f.Stated == nil {
		return nil, nil
	}
	return f.Stated(m, req.Address)
}

// loadInstalled reads the machine that runs what the provision wanted, and refuses one that cannot.
func (f *Fleet) loadInstalled(tx *store.Tx, p *trivet.Provision, named string, since time.Time) (*transition, error) {
	machine := cmp.Or(named, p.Status.Machine, p.Spec.Machine)
	if machine == "" {
		return nil, &trivet.Error{Op: "resolve", Kind: "Provision", Name: p.ShortName(),
			Err:  fmt.Errorf("%w: the records do not have the machine that runs it", trivet.ErrConflict),
			Hint: "name that: --machine MACHINE; to list those that may: trivet recover list"}
	}
	t, err := f.load(tx, machine)
	if err != nil {
		return nil, &trivet.Error{Op: "resolve", Kind: "Machine", Name: machine, Err: err}
	}
	if why, hint := f.cannotRun(t, p, since); why != "" {
		return nil, &trivet.Error{Op: "resolve", Kind: "Machine", Name: machine, Hint: hint,
			Err: fmt.Errorf("%w: %s", trivet.ErrConflict, why)}
	}
	return t, nil
}

// cannotRun returns why a machine does not run what a provision wanted since before a recovery, and what to do; empty
// where it may.
func (f *Fleet) cannotRun(t *transition, p *trivet.Provision, since time.Time) (why, hint string) {
	m, st := t.machine, &t.machine.Status
	switch {
	case !placement.Matches(m, &p.Spec) && p.Spec.Machine != "":
		return "the provision names machine " + p.Spec.Machine, "apply one that names this machine"
	case !placement.Matches(m, &p.Spec):
		return "it does not have the labels of the provision's selector", "set them: trivet label machine " + m.Name
	case st.Provision != "" && st.Provision != p.ShortName():
		return "it serves provision " + st.Provision, "see: trivet why " + m.Name
	case t.active && !t.workflow.Status.Frozen:
		return "its run " + t.workflow.ShortName() + " goes on", "see: trivet why " + m.Name
	case workflow.ActedSince(t.workflow, since):
		return "run " + t.workflow.ShortName() + " has started an action on it since the recovery, so that it is known " +
			"what it runs", "see: trivet why " + m.Name
	case f.isAgentIdle(m) && f.AgentHeard != nil && f.AgentHeard(m.Name, st.Epoch):
		return "an agent is up in it, so it runs the installer", "let it boot what is installed, and repeat the command"
	}
	return "", ""
}

// stopOthers takes all other machines from a provision whose runs are frozen.
func (f *Fleet) stopOthers(tx *store.Tx, p *trivet.Provision, served *transition, by string) error {
	runs, err := f.runsOf(tx, p)
	for _, t := range runs {
		if t.machine.UID != served.machine.UID {
			why := fmt.Sprintf("%s states that machine %s runs it", by, served.machine.Name)
			err = errors.Join(err, f.giveUp(t, p, trivet.ReasonResolved, why))
		}
	}
	return err
}

// adopt makes the machine active for the provision. Agents that may still be up in it are refused, and a power request
// is dropped.
func (f *Fleet) adopt(t *transition, p *trivet.Provision, address *addressing.Proposal, want netip.Addr,
	by string) error {
	m, st := t.machine, &t.machine.Status
	t.raiseEpoch()
	t.dropIntent()
	if err := workflow.Change(st, workflow.Adopt); err != nil {
		return err
	}
	network, err := f.networkOfInstalled(t, p, address, want)
	if err != nil {
		return err
	}
	if err := f.endInstalled(t, p, by); err != nil {
		return err
	}
	if st.State == trivet.MachineActive {
		st.Reason = ""
	}
	st.Provision, st.Workflow, st.HoldsData = p.ShortName(), t.workflow.ShortName(), ""
	t.event(trivet.ReasonResolved, "%s states that provision %s is installed on this machine: it serves it, and is left "+
		"as it is", by, p.ShortName())
	run := trivet.RaceRun{Machine: m.Name, MachineUID: m.UID, Address: plainAddress(network), Workflow: t.workflow.Name}
	p.Status = provision.Installed(p.Status, run, by, f.now())
	return errors.Join(f.putProvision(t.tx, p), f.save(t))
}

// endInstalled ends the run of the provision that a recovery has frozen, or records one that the records do not have:
// without actions, as it is not known what they were.
func (f *Fleet) endInstalled(t *transition, p *trivet.Provision, by string) error {
	note := "not known to be done: " + by + " states that it is installed"
	if t.active && t.workflow.Spec.ProvisionUID == p.UID {
		t.run.StateInstalled(note)
		t.active = false // its end is that of the statement
		return nil
	}
	name, err := f.workflowName(t.tx, p)
	if err != nil {
		return err
	}
	m := t.machine
	t.setRun(&trivet.Workflow{Meta: trivet.Meta{Kind: "Workflow", Project: p.Project, Name: name, Labels: p.Labels},
		Spec: trivet.WorkflowSpec{Machine: m.Name, MachineUID: m.UID, Provision: p.Name, ProvisionUID: p.UID,
			Template: p.Spec.Template, Attempt: p.Status.Attempts + 1, Epoch: m.Status.Epoch, Actions: []trivet.Action{},
			Disk: m.Spec.Disk}}, f.now())
	p.Status.Attempts++
	t.run.StateInstalled(note)
	t.active = false
	return f.checkNew(t)
}

// networkOfInstalled returns the network of the machine's boot port by the address that it has: the one that waits for
// the provision's next machine, the recorded one, or the one that the operator states, or spec.nics has. nil: it is not
// known.
func (f *Fleet) networkOfInstalled(t *transition, p *trivet.Provision, address *addressing.Proposal, want netip.Addr) (
	*trivet.RunNetwork, error) {
	in, err := f.arriving(t, p, address)
	if err != nil {
		return nil, err
	}
	if in.network != nil && want.IsValid() && in.record.Name != want.String() {
		in.network = nil // it is free
	}
	if err := f.arrive(t, in); err != nil || in.network != nil {
		return in.network, err
	}
	has := f.network(t.machine)
	if has == nil && address != nil && address.Address() == t.machine.Spec.NICs[0].Address {
		want = address.Address()
	}
	switch {
	case !want.IsValid() || plainAddress(has) == want.String():
		return has, nil
	case has != nil:
		return nil, &trivet.Error{Op: "resolve", Kind: "Machine", Name: t.machine.Name,
			Err:  fmt.Errorf("%w: its address is %s, and not %s", trivet.ErrConflict, plainAddress(has), want),
			Hint: "without --address that stays; where it is wrong: trivet delete address " + plainAddress(has)}
	case address == nil:
		return nil, fmt.Errorf("%w: no addresses are assigned here", trivet.ErrConflict)
	}
	network, err := f.networkFor(t, arrival{}, address)
	if errors.Is(err, trivet.ErrConflict) {
		return nil, &trivet.Error{Op: "resolve", Kind: "Machine", Name: t.machine.Name, Err: err,
			Hint: fmt.Sprintf("which port has it: trivet describe address %[1]s; where that is wrong: trivet delete address "+
				"%[1]s", address.Address())}
	}
	return network, err
}
