package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// A machine keeps its UID when it is renamed, and one transaction moves all that decisions rest on: its record, what
// refers to it by name and UID, its last run, and the provisions that it serves or has served last. What is history
// keeps the former name. Nothing outside of the store may depend on the name meanwhile: so there is no run, whose
// agent, deadlines and log have it, and no head uses the BMC. An idle agent learns its name from the next response (see
// [state.Tables.MachinesOnce]).

// Rename gives a machine another name, for an operator. One that has the new name already, since the response to the
// same request was lost, is left alone.
func (f *Fleet) Rename(ctx context.Context, machine string, req trivet.RenameRequest, by string) error {
	err := req.Validate()
	if err == nil {
		err = f.checkNotAwaited(machine, req.Name)
	}
	if err == nil {
		err = f.update(ctx, func(tx *store.Tx) error { return f.rename(tx, machine, req, by) })
	}
	if named := (*trivet.Error)(nil); errors.As(err, &named) && named.Op == opRename {
		return named // with its hint
	}
	if err != nil {
		return errRename(machine, "", err)
	}
	return nil
}

const opRename = "rename"

func errRename(machine, hint string, err error) error {
	return &trivet.Error{Op: opRename, Kind: "Machine", Name: machine, Hint: hint, Err: err}
}

// checkNotAwaited refuses to rename a machine for which a provision waits by its name, as far as this head knows, and
// one whose data would be overwritten by one that waits for the new name. One that is created meanwhile says that there
// is no such machine.
func (f *Fleet) checkNotAwaited(machine, to string) error {
	m, err := f.Machines.GetShared(machine)
	if err != nil {
		return nil // the transaction finds out
	}
	named := *m
	named.Name = to
	for p := range f.NamingFor(&named) {
		if m.Status.HoldsData != "" { // which a provision that names the machine may overwrite
			return errRename(machine, "delete that provision, or choose another name",
				fmt.Errorf("%w: it holds the data of %s, and provision %s waits for a machine %s", trivet.ErrConflict,
					m.Status.HoldsData, p.ShortName(), to))
		}
	}
	for p := range f.NamingFor(m) {
		return errRename(machine, "delete that, or let it run; after the renaming, create it with the new name",
			fmt.Errorf("%w: provision %s names it, and waits for it", trivet.ErrConflict, p.ShortName()))
	}
	return nil
}

func (f *Fleet) rename(tx *store.Tx, machine string, req trivet.RenameRequest, by string) error {
	if reached := tx.ClusterVersion(); trivet.RenameRelease.Compare(reached) > 0 {
		return errRename(machine, "upgrade the other heads first: trivet head list",
			fmt.Errorf("%w: it needs release %s on all heads; the lowest has %q", trivet.ErrConflict,
				trivet.RenameRelease, reached))
	}
	t, err := f.load(tx, machine)
	switch {
	case errors.Is(err, trivet.ErrNotFound), err == nil && req.UID != "" && t.machine.UID != req.UID:
		return f.isRenamed(tx, machine, req)
	case err != nil:
		return err
	}
	if err := errors.Join(f.checkName(tx, machine, t.machine.UID, req.Name), checkNotInUse(t),
		f.checkNoHead(t, opRename)); err != nil {
		return err
	}
	provisions, err := provisionsOf(t)
	if err != nil {
		return err
	}
	r := &renaming{t, machine, req.Name}
	return errors.Join(f.moveMachine(r, by), f.moveProvisions(r, provisions), f.movePorts(r), f.moveRun(r),
		f.moveFailures(r))
}

// renaming is a machine that gets another name within a transaction.
type renaming struct {
	*transition
	from, to string
}

// isRenamed reports what became of a machine that does not have a name any more.
func (f *Fleet) isRenamed(tx *store.Tx, machine string, req trivet.RenameRequest) error {
	m, err := f.Machines.In(tx).Get(req.Name)
	if err == nil && len(m.Status.FormerNames) > 0 && m.Status.FormerNames[0] == machine &&
		(req.UID == "" || req.UID == m.UID) {
		return errUnchanged // by the same request, whose response was lost
	}
	for _, m := range f.Machines.In(tx).ListBy(state.ByFormerName, machine) {
		if req.UID == "" || req.UID == m.UID {
			return errRenamedTo(opRename, machine, m.Name)
		}
	}
	if req.UID != "" {
		return fmt.Errorf("%w: the machine with UID %s does not have this name any more", trivet.ErrNotFound, req.UID)
	}
	return trivet.ErrNotFound
}

func errRenamedTo(op, machine, now string) error {
	return &trivet.Error{Op: op, Kind: "Machine", Name: machine, Hint: "see: trivet describe machine " + now,
		Err: fmt.Errorf("%w: it was renamed to %s", trivet.ErrNotFound, now)}
}

// RenamedTo returns the error of an operation on a machine that is not found and was renamed, as far as this head
// knows; another error as it is.
func (f *Fleet) RenamedTo(op, machine string, err error) error {
	if now := f.RenamedName(machine); now != "" && errors.Is(err, trivet.ErrNotFound) {
		return errRenamedTo(op, machine, now)
	}
	return err
}

// renamedText says how the machine is named now that a provision names by a former name; empty where there is none.
func (f *Fleet) renamedText(machine string) string {
	if now := f.RenamedName(machine); now != "" {
		return "; it was renamed to " + now
	}
	return ""
}

// RenamedName returns the name of the machine that had a name which no machine has now; empty: there is none.
func (f *Fleet) RenamedName(machine string) string {
	if _, err := f.Machines.GetShared(machine); !errors.Is(err, trivet.ErrNotFound) {
		return ""
	}
	for _, m := range f.MachinesOnce(machine) {
		return m.Name
	}
	return ""
}

// checkName refuses a new name that is none, or another machine's.
func (f *Fleet) checkName(tx *store.Tx, machine, uid, to string) error {
	if machine == to {
		return &trivet.FieldError{Field: "name", Problem: fmt.Sprintf("%q is its name already", to)}
	}
	_, err := f.Machines.In(tx).Get(to)
	if errors.Is(err, trivet.ErrNotFound) {
		return f.checkFormerName(tx, opRename, machine, to, uid)
	}
	if err != nil {
		return err
	}
	return errRename(machine, "choose another name; see: trivet describe machine "+to,
		fmt.Errorf("%w: %s is the name of another machine", trivet.ErrExists, to))
}

// CheckNewName refuses a name of a new machine that another machine had before it was renamed.
func (f *Fleet) CheckNewName(tx *store.Tx, name string) error {
	return f.checkFormerName(tx, "create", name, name, "")
}

// checkFormerName refuses a name that another machine had: a name does not mean one machine and then, while agents,
// heads and people still use it for that one, another one.
func (f *Fleet) checkFormerName(tx *store.Tx, op, machine, name, uid string) error {
	for _, m := range f.Machines.In(tx).ListBy(state.ByFormerName, name) {
		if m.UID != uid {
			return &trivet.Error{Op: op, Kind: "Machine", Name: machine,
				Hint: "choose another name; it can be used when " + m.Name + " is deleted",
				Err:  fmt.Errorf("%w: %s was the name of machine %s until that was renamed", trivet.ErrExists, name, m.Name)}
		}
	}
	return nil
}

// checkNotInUse refuses to rename a machine while what is outside of the store depends on its name.
func checkNotInUse(t *transition) error {
	st := &t.machine.Status
	refuse := func(hint, format string, args ...any) error {
		return errRename(t.machine.Name, hint, fmt.Errorf("%w: "+format, append([]any{trivet.ErrConflict}, args...)...))
	}
	switch {
	case t.active && t.workflow.Status.Frozen:
		return refuse("decide about it first: trivet recover list", "its run %s is frozen", t.workflow.ShortName())
	case t.active, workflow.HasRun(st):
		return refuse("repeat the command when that has ended: trivet why "+t.machine.Name,
			"run %s of it is in progress, whose agent has this name", st.Workflow)
	case st.Intent != nil:
		return refuse("repeat the command in a moment", "its BMC is asked for power %s", st.Intent.Want)
	case st.PowerHead != "":
		return refuse("repeat the command in a moment; if that head is lost, have another one use the BMC before: "+
			"trivet power on "+t.machine.Name, "head %s may still use its BMC", st.PowerHead)
	}
	return nil
}

// provisionsOf returns the full names of the provisions that the machine serves, or has served last. Others have it in
// their history, with its UID.
func provisionsOf(t *transition) (names []string, err error) {
	if p := t.machine.Status.Provision; p != "" {
		names = append(names, trivet.Resolve("", p))
	}
	if w := t.workflow; w != nil && w.Spec.Provision != "" {
		names = append(names, trivet.Resolve(w.Project, w.Spec.Provision))
	}
	for _, r := range t.tx.Referrers(t.machine) {
		switch r.From {
		case "Provision":
			names = append(names, r.Record.Header().FullName())
		case "Workflow":
			return nil, fmt.Errorf("%w: run %s of it has not ended", trivet.ErrConflict, r.Record.Header().ShortName())
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// moveMachine moves the machine's record, with an event under each of the two names.
func (f *Fleet) moveMachine(r *renaming, by string) error {
	m := r.machine
	r.event(trivet.ReasonRenamed, "%s renamed it to %s; what happens to it from now on has that name", by, r.to)
	if err := f.saveEvents(r.transition); err != nil {
		return err
	}
	former := slices.DeleteFunc(append([]string{r.from}, m.Status.FormerNames...),
		func(name string) bool { return name == r.to })
	m.Name, m.Status.FormerNames = r.to, former[:min(len(former), trivet.MaxFormerNames)]
	if m.Status.State == trivet.MachineReleasing { // its reason has the name
		r.explainRelease()
	}
	r.events = nil
	r.event(trivet.ReasonRenamed, "it was %s until %s renamed it; what happened to it before has that name", r.from, by)
	if err := f.saveEvents(r.transition); err != nil {
		return err
	}
	return f.Machines.In(r.tx).Rename(r.from, m)
}

// moveProvisions moves what provisions refer to.
func (f *Fleet) moveProvisions(r *renaming, names []string) error {
	for _, name := range names {
		p, err := f.Provisions.In(r.tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) || err == nil && !provision.MoveMachine(p, r.machine.UID, r.from, r.to) {
			continue
		}
		if err == nil {
			err = f.putProvision(r.tx, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// movePorts moves the records of the machine's MACs, and of the addresses that it owns. The lists of these are
// compared: one that it gets at this moment has the new name (see [addressing.Leases.Bind]).
func (f *Fleet) movePorts(r *renaming) error {
	macs, addresses := f.MACs.In(r.tx), f.Addresses.In(r.tx)
	for _, nic := range r.machine.Spec.NICs {
		mac, err := macs.Get(nic.MAC)
		if err == nil && mac.Spec.MachineUID == r.machine.UID {
			mac.Spec.Machine = r.to
			err = macs.Put(mac)
		}
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
		for _, owned := range addresses.ListBy(state.ByOwned, nic.MAC) {
			a, err := addresses.Get(owned.Name)
			if err == nil && a.Spec.MachineUID == r.machine.UID {
				a.Spec.Machine = r.to
				err = addresses.Put(a)
			}
			if err != nil && !errors.Is(err, trivet.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// moveRun moves the machine's last run, which can be continued, and with which others are compared. The name of the
// host that it has installed is in its seed, and stays.
func (f *Fleet) moveRun(r *renaming) error {
	if r.workflow == nil {
		return nil
	}
	r.workflow.Spec.Machine = r.to
	return f.Workflows.In(r.tx).Put(r.workflow)
}

// moveFailures moves the machine among those that failed with what they share: it must not count twice.
func (f *Fleet) moveFailures(r *renaming) error {
	for _, kind := range []trivet.Kind{"Site", "Network", "Platform", "Image"} {
		all, err := f.sharedOf(r.transition, kind)
		if err != nil {
			return err
		}
		for _, s := range all {
			if *s.failures == nil {
				continue
			}
			machines := (*s.failures).Machines
			i := slices.Index(machines, r.from)
			if i < 0 {
				continue
			}
			machines[i] = r.to
			if err := s.put(); err != nil {
				return err
			}
		}
	}
	return nil
}
