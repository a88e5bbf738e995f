package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// StartRelease releases a machine by command: the run that it has is cancelled, the provision that it
// serves is deleted, and a run stops it, wipes its disks where the mode says so, and powers it off. A quarantined
// machine stays in quarantine, unless it is checked and nothing is found. A machine that is released in the same mode
// already is left alone.
func (f *Fleet) StartRelease(ctx context.Context, machine string, req trivet.ReleaseRequest) error {
	mode := cmp.Or(req.Mode, trivet.ReleaseWipe)
	return f.onMachine(ctx, "release", machine, func(t *transition) error {
		st := &t.machine.Status
		if reached := t.tx.ClusterVersion(); trivet.SinceRelease.Compare(reached) > 0 {
			return &trivet.Error{Op: "release", Hint: "upgrade the other heads first: trivet head list",
				Err: fmt.Errorf("%w: it needs release %s on all heads; the lowest has %q", trivet.ErrConflict,
					trivet.SinceRelease, reached)}
		}
		if err := f.checkNoHead(t, "release"); err != nil {
			return err
		}
		if st.Provision != req.Provision {
			return errServes(st.Provision)
		}
		if t.active && t.workflow.Spec.Release == mode {
			return errUnchanged
		}
		if t.active && workflow.IsRelease(t.workflow) && mode.IsCheck() {
			return &trivet.Error{Op: "check", Hint: "wait for it, or cancel it: trivet quarantine " + t.machine.Name,
				Err: fmt.Errorf("%w: run %s of it is in progress", trivet.ErrConflict, t.workflow.ShortName())}
		}
		if err := workflow.CheckRelease(st, mode); err != nil {
			return err
		}
		if err := errors.Join(f.endRun(t, "the machine is released"), f.deleteProvision(t)); err != nil {
			return err
		}
		return f.beginRelease(t, mode)
	})
}

// releaseBy releases a machine that is taken from its provision, in the mode that the site chooses.
func (f *Fleet) releaseBy(t *transition, p *trivet.Provision, mode trivet.ReleaseMode, reason, why string) error {
	if err := f.endRun(t, why); err != nil {
		return err
	}
	t.event(reason, "provision %s: %s", p.ShortName(), why)
	if err := f.beginRelease(t, mode); err != nil {
		return err
	}
	return f.save(t)
}

func errServes(provision string) error {
	if provision == "" {
		return fmt.Errorf("%w: it serves no provision any more; check it, and repeat the command", trivet.ErrConflict)
	}
	return &trivet.Error{Op: "release", Hint: "release that instead: trivet release provision/" + provision,
		Err: fmt.Errorf("%w: it serves provision %s", trivet.ErrConflict, provision)}
}

// endRun cancels the machine's run, where one goes on, and writes it.
func (f *Fleet) endRun(t *transition, why string) error {
	if !t.active {
		return nil
	}
	t.run.Cancel(why)
	t.events, t.active = append(t.events, t.run.Events...), false
	t.run.Events = nil
	f.countRun(t)
	return f.Workflows.In(t.tx).Put(t.workflow)
}

// deleteProvision deletes the provision that the machine serves, where it still exists.
func (f *Fleet) deleteProvision(t *transition) error {
	st := &t.machine.Status
	if st.Provision == "" {
		return nil
	}
	name := trivet.Resolve("", st.Provision)
	p, err := f.Provisions.In(t.tx).Get(name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && p.Status.MachineUID != t.machine.UID && !races(p, t.machine) {
		return nil
	}
	if err != nil {
		return err
	}
	if races(p, t.machine) {
		return f.leaveRace(t.tx, p, "machine "+t.machine.Name+" is released by command")
	}
	if p.Status.Race != nil {
		if err := f.stopSecond(t.tx, p, p.Status.Race, trivet.ReasonReleased, "the provision was deleted"); err != nil {
			return err
		}
	}
	t.event(trivet.ReasonReleased, "provision %s was deleted, as the machine is released", p.ShortName())
	return f.removeProvision(t.tx, p)
}

// releaseMode returns what becomes of the machine's disks when its provision is deleted. Those of a machine that was
// never granted the provision's run hold nothing of it.
func (t *transition) releaseMode() trivet.ReleaseMode {
	st := &t.machine.Status
	if trivet.SinceRelease.Compare(t.tx.ClusterVersion()) > 0 ||
		workflow.StateOf(st) == trivet.MachineClaimed && !workflow.RunsFormer(st, t.workflow) {
		return trivet.ReleaseNoWipe
	}
	return t.site.ReleaseOrDefault()
}

// beginRelease starts a run that releases the machine, whose last run has ended and is written.
func (f *Fleet) beginRelease(t *transition, mode trivet.ReleaseMode) error {
	m, st := t.machine, &t.machine.Status
	agentUp := workflow.StateOf(st) == trivet.MachineAvailable && f.isAgentIdle(m) &&
		(!mode.IsCheck() || st.AgentRelease.Compare(trivet.SinceRelease) >= 0) // an earlier one cannot test
	switch mode {
	case trivet.ReleaseCheck, trivet.ReleaseCheckAll:
		if st.State == trivet.MachineQuarantined && workflow.WipeFailed(t.workflow) { // a test is no wipe
			st.HoldsData = dataOf(st, t.workflow)
		}
	case trivet.ReleaseKeepData:
		st.HoldsData = dataOf(st, t.workflow)
	case trivet.ReleaseNoWipe:
		st.HoldsData = ""
	}
	if err := workflow.Change(st, workflow.BeginRelease); err != nil {
		return err
	}
	st.Provision = ""
	t.dropIntent()
	w, err := f.newRelease(t.tx, m, mode)
	if err != nil {
		return err
	}
	st.Workflow = w.ShortName()
	t.setRun(w, f.now())
	t.event(trivet.ReasonReleasing, "run %s stops the machine; mode %s", w.ShortName(), mode)
	rules := t.ruleMachine()
	rules.AgentUp = agentUp
	t.run.StartRelease(rules, t.site.Limits)
	switch {
	case agentUp && workflow.AwaitsAgent(w):
		st.Epoch++
		_, err = t.grant()
	case agentUp: // it only has to be powered off
	default:
		t.raiseEpoch()
		if workflow.AwaitsAgent(w) && rules.Power {
			f.setIntent(t, "cycle")
		}
	}
	return err
}

// dataOf says whose data is on the machine's disks.
func dataOf(st *trivet.MachineStatus, w *trivet.Workflow) string {
	switch {
	case st.HoldsData != "":
		return st.HoldsData
	case st.Provision != "":
		return "provision " + st.Provision
	case w != nil && w.Spec.Provision != "":
		return dataOfProvision(w.Project, w.Spec.Provision)
	}
	return "unknown"
}

// dataOfProvision is what HoldsData names a provision by.
func dataOfProvision(project, name string) string {
	return "provision " + trivet.ShortName(trivet.FullName(project, name))
}

// newRelease returns a run that releases a machine. Epochs number the releases of a machine; a deleted machine of its
// name may have left runs, so that it tries numbers at growing distances.
func (f *Fleet) newRelease(tx *store.Tx, m *trivet.Machine, mode trivet.ReleaseMode) (*trivet.Workflow, error) {
	w := &trivet.Workflow{
		Meta: trivet.Meta{Kind: "Workflow", Project: trivet.DefaultProject},
		Spec: trivet.WorkflowSpec{Machine: m.Name, MachineUID: m.UID, Release: mode, Epoch: m.Status.Epoch,
			Actions: workflow.ReleaseActions(mode, m.Spec.BMC != nil, m.Status.Inventory), Disk: m.Spec.Disk},
	}
	for number, distance := m.Status.Epoch+1, int64(1); ; number, distance = number+distance, distance*2 {
		w.Name = workflow.ReleaseName(mode, m.Name, number)
		free, err := f.isFreeRun(tx, w.FullName())
		if err != nil || free {
			return w, err
		}
	}
}

// isFreeRun reports whether no run has a name, also no former one.
func (f *Fleet) isFreeRun(tx *store.Tx, name string) (bool, error) {
	_, err := f.Workflows.In(tx).Get(name)
	if err == nil || !errors.Is(err, trivet.ErrNotFound) {
		return false, err
	}
	_, err = f.Workflows.In(tx).Former(name)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return true, nil
	case err != nil && !errors.Is(err, trivet.ErrInvalid): // one that cannot be read has the name
		return false, err
	}
	return false, nil
}

// isAgentIdle reports whether an agent is up in the machine, which a run needs no boot for.
func (f *Fleet) isAgentIdle(m *trivet.Machine) bool {
	st := &m.Status
	return st.AgentKey != "" && st.Power != "off" && f.AgentUp != nil && f.AgentUp(m.Name, st.Epoch)
}

// releasingReason says what a machine waits for that a run releases.
func releasingReason(w *trivet.Workflow) string {
	why := fmt.Sprintf("run %s releases it (%s)", w.ShortName(), w.Spec.Release)
	if w.Spec.Release.IsCheck() {
		why = fmt.Sprintf("run %s tests its hardware", w.ShortName())
	}
	if s := w.Status.Current(); s != nil {
		why += ": " + s.Name
		if s.Note != "" {
			why += ", " + s.Note
		}
	}
	return why
}

// countRun counts, after the commit, what the transition has changed in the run.
func (f *Fleet) countRun(t *transition) {
	if f.Metrics == nil {
		return
	}
	spec, was, is := &t.workflow.Spec, t.was, t.workflow.Status
	t.tx.AfterCommit(func() { f.Metrics.transition(spec, &was, &is) })
}
