package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Pause pauses a provision for an operator: it claims no machine, and its run, where it has one, starts no further
// action. One that is paused stays as it is.
func (f *Fleet) Pause(ctx context.Context, provision, by string) error {
	return f.onProvision(ctx, "pause", provision, func(tx *store.Tx, p *trivet.Provision) error {
		if p.Status.Paused != nil {
			return errUnchanged
		}
		runs, err := f.runsOf(tx, p)
		if err != nil {
			return err
		}
		p.Status.Paused = &trivet.Pause{By: by, Since: f.now()}
		if tx.ClusterVersion().Compare(trivet.PauseRelease) < 0 { // which the write refuses
			return nil
		}
		for _, t := range runs {
			err = errors.Join(err, f.pauseRun(t, by))
		}
		return err
	})
}

func (f *Fleet) pauseRun(t *transition, by string) error {
	if err := workflow.CheckPause(t.machine, t.workflow); err != nil {
		return err
	}
	power := ""
	if t.machine.Status.Intent != nil {
		power = t.machine.Status.Intent.Want
	}
	t.dropIntent()
	t.run.Pause(by, power)
	return f.save(t)
}

// Resume resumes a provision that is paused. It changes nothing else: the run goes on where it was.
func (f *Fleet) Resume(ctx context.Context, provision, by string) error {
	return f.onProvision(ctx, "resume", provision, func(tx *store.Tx, p *trivet.Provision) error {
		if p.Status.Paused == nil {
			return errUnchanged
		}
		runs, err := f.runsOf(tx, p)
		if err != nil {
			return err
		}
		p.Status.Paused = nil
		for _, t := range runs {
			if t.pause() == nil {
				continue
			}
			if power := t.run.Resume(by); power != "" {
				f.setIntent(t, power)
			}
			err = errors.Join(err, f.save(t))
		}
		return err
	})
}

// onProvision changes a provision that has not ended, in one transaction.
func (f *Fleet) onProvision(ctx context.Context, op, name string,
	do func(tx *store.Tx, p *trivet.Provision) error) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		p, err := f.Provisions.In(tx).Get(name)
		switch {
		case err != nil:
			return err
		case p.Spec.Count != nil:
			return errHasMembers(p)
		case p.Status.State.Ended():
			return fmt.Errorf("%w: it has ended (%s)", trivet.ErrConflict, p.Status.State)
		}
		if err := do(tx, p); err != nil {
			return err
		}
		return f.putProvision(tx, p)
	})
	return failed(op, name, err)
}

// failed says in an error which operation on which provision it is about, unless it says so itself.
func failed(op, name string, err error) error {
	if detailed := (*trivet.Error)(nil); err == nil || errors.As(err, &detailed) {
		return err
	}
	return &trivet.Error{Op: op, Kind: "Provision", Name: trivet.ShortName(name), Err: err}
}

// runsOf reads the machines and the runs that a provision has now: none, one, or the two of a race.
func (f *Fleet) runsOf(tx *store.Tx, p *trivet.Provision) (all []*transition, err error) {
	runs := []trivet.RaceRun{{Machine: p.Status.Machine, Workflow: p.Status.Workflow}}
	if p.Status.Race != nil {
		runs = append(runs, *p.Status.Race)
	}
	for _, run := range runs {
		t, err := f.runOf(tx, p, run)
		if err != nil {
			return nil, err
		}
		if t != nil {
			all = append(all, t)
		}
	}
	return all, nil
}

// runOf reads the machine of a run of a provision; it is nil where the run does not go on.
func (f *Fleet) runOf(tx *store.Tx, p *trivet.Provision, run trivet.RaceRun) (*transition, error) {
	if run.Machine == "" {
		return nil, nil
	}
	t, err := f.load(tx, run.Machine)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case !t.active || t.workflow.FullName() != trivet.FullName(p.Project, run.Workflow) ||
		t.workflow.Spec.ProvisionUID != p.UID:
		return nil, nil
	}
	return t, nil
}

// pause returns the pause of the machine's run; nil where it is not paused.
func (t *transition) pause() *trivet.Pause {
	if t.workflow == nil {
		return nil
	}
	return t.workflow.Status.Paused
}

// recordRelease records what the machine's agent understands, once all heads know the field: an earlier one would leave
// that of a former agent.
func recordRelease(t *transition, h *trivet.Hello) {
	t.machine.Status.AgentRelease = ""
	if t.tx.ClusterVersion().Compare(trivet.PauseRelease) >= 0 {
		t.machine.Status.AgentRelease = h.Release
	}
}

// idleBecause returns why the machine's agent has no run.
func (t *transition) idleBecause() string {
	if t.pause() != nil {
		t.dropIntent() // it is up without
		return "its run is paused"
	}
	return "there is no run for it"
}

// errHasMembers refuses what is done to a member of a provision, by its own name.
func errHasMembers(p *trivet.Provision) error {
	return &trivet.Error{Err: fmt.Errorf("%w: it has spec.count", trivet.ErrConflict),
		Hint: fmt.Sprintf("name one of its members, such as %s; spec.maxInFlight limits how many begin",
			trivet.MemberName(p.ShortName(), 1))}
}
