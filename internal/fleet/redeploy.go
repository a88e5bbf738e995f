package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// A machine is installed again by another run of the provision that it serves. It keeps its provision and its address,
// and its former system runs until its BMC has power-cycled it: until an agent was granted the run, the machine does
// not become available without a proof that it is off (see workflow.RunsFormer).

// Redeployment is what installs a machine again.
type Redeployment struct {
	Provision *trivet.Provision
	Template  *trivet.Template
	Former    *trivet.Workflow // has installed what the machine runs; nil: it is not known any more
	Run       *trivet.Workflow // is to install it again
	ID        string           // of all of these, as they are now

	limits  map[string]trivet.Limit
	network *trivet.RunNetwork
}

// Redeploy installs the machine of a provision again, for an operator, with the template and the images as they are
// now. It is refused where no machine in service has the provision, where it could not be installed, and where
// something of the plan that the operator has seen has changed since.
func (f *Fleet) Redeploy(ctx context.Context, name string, req trivet.RedeployRequest, by string) error {
	address, err := f.proposeFor(name)
	if err != nil {
		return failed("redeploy", name, err)
	}
	err = f.update(ctx, func(tx *store.Tx) error {
		t, r, err := f.redeployment(tx, name, req, address)
		if err != nil {
			return err
		}
		if req.Plan != "" && req.Plan != r.ID {
			return &trivet.Error{Op: "redeploy", Kind: "Provision", Name: r.Provision.ShortName(),
				Err:  fmt.Errorf("%w: what would be installed has changed since its plan was shown", trivet.ErrConflict),
				Hint: "look at the plan, and repeat the command"}
		}
		return f.redeploy(t, r, req, by)
	})
	if errors.Is(err, errHeldBack) {
		err = &trivet.Error{Op: "redeploy", Kind: "Provision", Name: trivet.ShortName(name), Err: err,
			Hint: "wait until one of them has ended, or raise spec.maxInFlight"}
	}
	return failed("redeploy", name, err)
}

// errPlanned ends a transaction that has only planned.
var errPlanned = errors.New("planned only")

// PlanRedeploy returns what Redeploy would do, and changes nothing.
func (f *Fleet) PlanRedeploy(ctx context.Context, name string) (r *Redeployment, err error) {
	address, err := f.proposeBy(f.Predict, f.machineOf(name))
	if err != nil {
		return nil, failed("redeploy", name, err)
	}
	err = f.update(ctx, func(tx *store.Tx) error {
		if _, r, err = f.redeployment(tx, name, trivet.RedeployRequest{}, address); err != nil {
			return err
		}
		return errPlanned
	})
	if !errors.Is(err, errPlanned) {
		return nil, failed("redeploy", name, err)
	}
	return r, nil
}

// redeployment claims the machine that serves a provision, in the transaction, and renders its run.
func (f *Fleet) redeployment(tx *store.Tx, name string, req trivet.RedeployRequest, address *addressing.Proposal) (
	*transition, *Redeployment, error) {
	p, err := f.Provisions.In(tx).Get(name)
	if err != nil {
		return nil, nil, err
	}
	if p.Spec.Count != nil {
		return nil, nil, errHasMembers(p)
	}
	if err := provision.CheckRedeploy(p, req); err != nil {
		return nil, nil, err
	}
	if p.Spec.Head != nil {
		return nil, nil, errPromoted("redeploy", p)
	}
	t, err := f.serving(tx, p)
	if err != nil {
		return nil, nil, err
	}
	r := &Redeployment{Provision: p, Former: t.workflow}
	if r.Former != nil && (r.Former.Name != p.Status.Workflow || r.Former.Spec.ProvisionUID != p.UID) {
		r.Former = nil
	}
	if err := f.takeAgain(t); err != nil {
		return nil, nil, err
	}
	if err := f.renderAgain(t, r, address); err != nil {
		return nil, nil, errNotAgain("redeploy", p, err)
	}
	return t, r, nil
}

// takeAgain claims the machine for another run of its provision. Its agents are refused, and a power request for what
// it runs now is dropped.
func (f *Fleet) takeAgain(t *transition) error {
	m := t.machine
	refuse := func(why, hint string) error {
		return &trivet.Error{Op: "redeploy", Kind: "Machine", Name: m.Name,
			Err: fmt.Errorf("%w: it is %s", trivet.ErrConflict, why), Hint: hint}
	}
	switch {
	case m.Status.State == trivet.MachineQuarantined:
		return refuse("quarantined", "accept it first: trivet accept "+m.Name)
	case m.Spec.Cordoned:
		return refuse("cordoned", hintUncordon(m))
	}
	t.raiseEpoch()
	t.dropIntent()
	return workflow.Change(&m.Status, workflow.Redeploy)
}

// renderAgain renders the run that installs the machine again.
func (f *Fleet) renderAgain(t *transition, r *Redeployment, address *addressing.Proposal) (err error) {
	p := r.Provision
	if r.network, err = f.networkFor(t, arrival{}, address); err != nil {
		return err
	}
	if r.Template, err = f.Templates.In(t.tx).Get(trivet.Resolve(p.Project, p.Spec.Template)); err != nil {
		return err
	}
	if r.Run, r.limits, err = f.render(t, p, r.network); err != nil {
		return err
	}
	r.Run.Spec.Redeploys = p.Status.Workflow
	if r.ID, err = r.identify(); err != nil {
		return err
	}
	t.setRun(r.Run, f.now())
	if err := f.checkShared(t, p); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrConflict, err)
	}
	return nil
}

// identify returns what differs where something else would be installed: by the actions as they are rendered, of which
// the disks of the machine are a part.
func (r *Redeployment) identify() (string, error) {
	p, h := r.Provision, sha256.New()
	fmt.Fprintf(h, "%s %s %q ", p.UID, p.Status.MachineUID, p.Status.Workflow)
	err := json.NewEncoder(h).Encode([]any{r.Run.Spec, r.network})
	return hex.EncodeToString(h.Sum(nil)[:16]), err
}

func (f *Fleet) redeploy(t *transition, r *Redeployment, req trivet.RedeployRequest, by string) error {
	p := r.Provision
	why := fmt.Sprintf("%s redeploys provision %s on this machine", by, p.ShortName())
	if req.Reason != "" {
		why += ": " + req.Reason
	}
	t.event(trivet.ReasonRedeployed, "%s", why)
	p.Status = provision.Redeploy(p)
	if err := errors.Join(f.startRun(t, r.Run, r.limits), f.assign(t, p, arrival{}, r.network)); err != nil {
		return err
	}
	return f.save(t)
}
