package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// Replace ends the service of a provision's machine, for an operator, as if that had failed: it is quarantined and
// powered off, and its provision goes on with another machine, to which the address moves once it is off. Nothing counts
// against the machine. It is refused where the provision could not be installed again, or where no other machine is free
// unless it may wait for one.
func (f *Fleet) Replace(ctx context.Context, name string, req trivet.ReplaceRequest, by string) error {
	if err := f.hasSpare(name, req); err != nil {
		return failed("replace", name, err)
	}
	err := f.update(ctx, func(tx *store.Tx) error {
		p, err := f.Provisions.In(tx).Get(name)
		if err != nil {
			return err
		}
		if p.Spec.Count != nil {
			return errHasMembers(p)
		}
		if err := provision.CheckReplace(p, req); err != nil {
			return err
		}
		if p.Spec.Head != nil {
			return errPromoted("replace", p)
		}
		t, err := f.serving(tx, p)
		if err != nil {
			return err
		}
		if err := f.canRender(t, p); err != nil {
			return err
		}
		return f.replace(t, p, req, by)
	})
	return failed("replace", name, err)
}

func (f *Fleet) replace(t *transition, p *trivet.Provision, req trivet.ReplaceRequest, by string) error {
	why := fmt.Sprintf("%s replaced it as the machine of provision %s", by, p.ShortName())
	if req.Reason != "" {
		why += ": " + req.Reason
	}
	t.event(trivet.ReasonReplaced, "%s; the provision goes on with another machine", why)
	if err := errors.Join(f.vacate(t), t.quarantine(why)); err != nil {
		return err
	}
	f.powerOffFailed(t)
	run := provision.Run{Machine: t.machine, Name: p.Status.Workflow}
	run.Address, run.Kept = f.leaving(t)
	p.Status = provision.Replace(p, run, req, by, f.now())
	return errors.Join(f.putProvision(t.tx, p), f.save(t))
}

// hasSpare refuses a replacement where, as far as this head knows, no machine is free. What is not known yet or cannot be
// replaced is refused by the transaction.
func (f *Fleet) hasSpare(name string, req trivet.ReplaceRequest) error {
	p, err := f.Provisions.GetShared(name)
	if err != nil || req.Wait || p.Spec.Count != nil || provision.CheckReplace(p, req) != nil {
		return nil
	}
	m, why := f.choose(p)
	if m != nil {
		return nil
	}
	return &trivet.Error{Op: "replace", Kind: "Provision", Name: p.ShortName(),
		Err:  fmt.Errorf("%w: %s", trivet.ErrConflict, why),
		Hint: "to stop its machine nevertheless, and wait for another one, add --wait"}
}

// serving reads the machine that serves a provision, to stop it. One that is a head is refused.
func (f *Fleet) serving(tx *store.Tx, p *trivet.Provision) (*transition, error) {
	t, err := f.lastMachine(tx, p)
	if err != nil {
		return nil, err
	}
	if st := &t.machine.Status; workflow.StateOf(st) != trivet.MachineActive || st.Provision != p.ShortName() {
		return nil, fmt.Errorf("%w: machine %s does not serve it: it is %s", trivet.ErrConflict, t.machine.Name, st.State)
	}
	return t, f.checkNoHead(t, "stop")
}

// canRender refuses to stop a machine whose provision could not be installed again, as its template or an image was
// deleted or changed.
func (f *Fleet) canRender(t *transition, p *trivet.Provision) error {
	network, err := f.networkFor(t, arrival{}, nil)
	if err == nil {
		_, _, err = f.render(t, p, network)
	}
	if err == nil {
		return nil
	}
	return errNotAgain("replace", p, err)
}

// errNotAgain refuses to stop a machine whose provision could not be installed again.
func errNotAgain(op string, p *trivet.Provision, err error) error {
	return &trivet.Error{Op: op, Kind: "Provision", Name: p.ShortName(),
		Err: fmt.Errorf("it cannot be installed again: %w", err), Hint: "its machine was not changed; correct that first"}
}
