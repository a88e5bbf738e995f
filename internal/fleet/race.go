package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Two machines may install a provision at the same time. The second one is claimed once, right after the first, if one
// is free that no other provision waits for and the site's budget allows it; else the provision goes on with one
// machine, and says why. The transaction that ends one of the two runs with success stops the other one: what its agent
// reports later has an old epoch.

// races reports whether a machine is the second one of a provision.
func races(p *trivet.Provision, m *trivet.Machine) bool {
	return p.Status.Race != nil && p.Status.Race.MachineUID == m.UID
}

// race claims the second machine of a provision, or writes why there is none. It fails with ErrConflict where the
// chosen one was claimed meanwhile.
func (f *Fleet) race(ctx context.Context, p *trivet.Provision) error {
	m, why := f.choose(p)
	if m != nil {
		for range f.WaitingFor(m) {
			m, why = nil, "other provisions wait for the machines that are free"
			break
		}
	}
	if m == nil {
		return f.update(ctx, func(tx *store.Tx) error { return f.noRace(tx, p.FullName(), why) })
	}
	address, err := f.propose(m.Name)
	if err != nil {
		return err
	}
	machines := 0
	for _, n := range f.CountMachines() {
		machines += n
	}
	return f.update(ctx, func(tx *store.Tx) error { return f.claimSecond(tx, m.Name, p.FullName(), address, machines) })
}

// noRace writes why a provision has no second machine.
func (f *Fleet) noRace(tx *store.Tx, name, why string) error {
	p, err := f.wantsSecond(tx, name)
	if err != nil {
		return err
	}
	p.Status.RaceNote = "no race: " + why
	return f.putProvision(tx, p)
}

// wantsSecond reads a provision that wants a second machine, or fails with errUnchanged.
func (f *Fleet) wantsSecond(tx *store.Tx, name string) (*trivet.Provision, error) {
	p, err := f.Provisions.In(tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !provision.WantsSecond(p) {
		return nil, errUnchanged
	}
	return p, err
}

// claimSecond claims the machine in a site of so many.
func (f *Fleet) claimSecond(tx *store.Tx, machine, name string, address *addressing.Proposal, machines int) error {
	p, err := f.wantsSecond(tx, name)
	if err != nil {
		return err
	}
	if why := f.raceLimit(tx, machines); why != "" {
		return f.noRace(tx, name, why)
	}
	t, err := f.load(tx, machine)
	if errors.Is(err, trivet.ErrNotFound) {
		return fmt.Errorf("%w: the machine was deleted", trivet.ErrConflict)
	}
	if err != nil {
		return err
	}
	if t.machine.Status.HoldsData != "" {
		return fmt.Errorf("%w: the disks of the machine hold data", trivet.ErrConflict)
	}
	if err := claimable(t.machine); err != nil {
		return err
	}
	network, err := f.networkFor(t, arrival{}, address)
	if err != nil {
		return err
	}
	w, limits, err := f.render(t, p, network)
	if err != nil { // the first run was rendered before the template was changed
		return f.noRace(tx, name, err.Error())
	}
	if err := f.startRun(t, w, limits); err != nil {
		return err
	}
	if err := f.checkShared(t, p); err != nil {
		return f.noRace(tx, name, err.Error())
	}
	return f.enterRace(t, p, network)
}

// raceLimit returns why no further machine may race in a site of so many; empty where one may.
func (f *Fleet) raceLimit(tx *store.Tx, machines int) string {
	site := f.siteIn(tx)
	limit := provision.RaceBudget(&site, machines)
	if n := f.Provisions.In(tx).CountBy(state.ByRace, state.Racing); n >= limit {
		return fmt.Sprintf("%d of %d machines race that spec.raceBudget of the site allows", n, limit)
	}
	return ""
}

// enterRace makes the run that was started on the machine the second one of the provision.
func (f *Fleet) enterRace(t *transition, p *trivet.Provision, network *trivet.RunNetwork) error {
	m, w := t.machine, t.workflow
	if err := f.checkNew(t); err != nil {
		return err
	}
	m.Status.Provision, m.Status.Workflow = p.ShortName(), w.ShortName()
	t.event(trivet.ReasonRacing, "claimed by provision %s for template %s, as the second machine beside %s", p.ShortName(),
		p.Spec.Template, p.Status.Machine)
	p.Status.Race = &trivet.RaceRun{Machine: m.Name, MachineUID: m.UID, Address: plainAddress(network), Workflow: w.Name}
	p.Status.Attempts++
	f.countRace(t.tx, "started")
	return errors.Join(f.putProvision(t.tx, p), f.save(t))
}

// finishRace writes into the provision that one of its two runs has ended, and stops the other one after a success.
func (f *Fleet) finishRace(t *transition, p *trivet.Provision, run provision.Run) error {
	next, stop := provision.AfterRace(p.Status, run)
	p.Status = next
	if stop == nil {
		f.countRace(t.tx, "failed")
		t.event(trivet.ReasonSwitched, "provision %s goes on with machine %s, which raced with this one", p.ShortName(),
			next.Machine)
		return f.putProvision(t.tx, p)
	}
	p.Status.Ended, p.Status.Paused = f.now(), nil
	t.event(trivet.ReasonRaceWon, "it serves provision %s: it was first, before %s", p.ShortName(), stop.Machine)
	f.countRace(t.tx, "won")
	f.countProvision(t.tx, p)
	err := f.stopSecond(t.tx, p, stop, trivet.ReasonRaceLost, fmt.Sprintf("machine %s was first", t.machine.Name))
	return errors.Join(err, f.putProvision(t.tx, p))
}

// stopSecond stops one of the two runs of a provision, and takes its machine from it.
func (f *Fleet) stopSecond(tx *store.Tx, p *trivet.Provision, run *trivet.RaceRun, reason, why string) error {
	t, err := f.load(tx, run.Machine)
	if errors.Is(err, trivet.ErrNotFound) ||
		err == nil && (t.machine.UID != run.MachineUID || t.machine.Status.Provision != p.ShortName()) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.giveUp(t, p, reason, why)
}

// leaveRace makes a provision go on with its first machine alone, as its second one is taken from it.
func (f *Fleet) leaveRace(tx *store.Tx, p *trivet.Provision, why string) error {
	p.Status = provision.Withdraw(p.Status, why)
	return f.putProvision(tx, p)
}

// countRace counts a race, after the commit.
func (f *Fleet) countRace(tx *store.Tx, outcome string) {
	if f.Metrics != nil {
		tx.AfterCommit(func() { f.Metrics.races.WithLabelValues(outcome).Inc() })
	}
}

// checkNew refuses a run that is too large, or whose name is in use.
func (f *Fleet) checkNew(t *transition) error {
	if err := workflow.CheckSize(t.workflow); err != nil {
		return err
	}
	_, err := f.Workflows.In(t.tx).Get(t.workflow.FullName())
	if err == nil {
		return fmt.Errorf("%w: workflow %s exists already", trivet.ErrConflict, t.workflow.ShortName())
	}
	if !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	return nil
}
