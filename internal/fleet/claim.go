package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/faultinject"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// agentUpWithin is how fresh the last word of an idle agent must be to count on it instead of on a boot.
const agentUpWithin = 30 * time.Second

// Claim takes a machine for a pending provision and makes its workflow. Where no machine fits, or the template cannot be
// rendered, the provision says why.
func (f *Fleet) Claim(ctx context.Context, provision string) error {
	p, err := f.Provisions.Get(provision)
	if err != nil || p.Status.State != "" && p.Status.State != trivet.ProvisionPending {
		return nil
	}
	choice := f.pick(&p.Spec)
	if choice.Machine == "" {
		return f.pend(ctx, provision, choice.Why)
	}
	err = f.onMachine(ctx, "claim", choice.Machine, func(c *change) error { return f.claim(c, provision) })
	switch {
	case errors.Is(err, trivet.ErrConflict): // somebody took the machine meanwhile; the next look chooses afresh
		return err
	case errors.Is(err, trivet.ErrInvalid), errors.Is(err, trivet.ErrNotFound), errors.Is(err, trivet.ErrTooLarge):
		return f.refuse(ctx, provision, err)
	}
	return err
}

// pick looks at the machine that is named, or among the free ones, and among all only to say why none is.
func (f *Fleet) pick(spec *trivet.ProvisionSpec) placement.Choice {
	if spec.Machine != "" {
		var named []*trivet.Machine
		if m, err := f.Machines.GetShared(spec.Machine); err == nil {
			named = append(named, m)
		}
		return placement.Pick(named, spec, nil)
	}
	if choice := placement.Pick(f.Machines.SharedBy(state.ByState, string(trivet.MachineAvailable)), spec, nil); choice.Machine != "" {
		return choice
	}
	return placement.Pick(slices.Collect(f.Machines.AllShared()), spec, nil)
}

func (f *Fleet) claim(c *change, provision string) error {
	m := c.machine
	p, err := f.Provisions.In(c.tx).Get(provision)
	if err != nil {
		return err
	}
	if p.Status.State != "" && p.Status.State != trivet.ProvisionPending {
		return errUnchanged
	}
	if (m.Status.State != trivet.MachineAvailable || m.Spec.Cordoned) && !faultinject.MachineTwice {
		return fmt.Errorf("%w: the machine is %s", trivet.ErrConflict, m.Status.State)
	}
	w, limits, err := f.render(c, p)
	if err != nil {
		return err
	}
	if _, err := f.Workflows.In(c.tx).Get(w.Name); err == nil {
		return fmt.Errorf("%w: workflow %s is there already", trivet.ErrConflict, w.Name)
	}
	c.adopt(w, f.now())
	state := c.mine()
	state.AgentUp = m.Status.AgentKey != "" && f.AgentUp != nil && f.AgentUp(m.Name, m.Status.Epoch, agentUpWithin)
	c.run.Start(state, limits, c.site.Limits)
	m.Status.State, m.Status.Reason = trivet.MachineClaimed, ""
	m.Status.Provision, m.Status.Workflow = p.Name, w.Name
	if state.Power && !state.AgentUp {
		f.intend(c, "cycle")
	}
	c.tell("Claimed", "claimed by provision %s for template %s", p.Name, p.Spec.Template)
	p.Status.State, p.Status.Reason, p.Status.Machine, p.Status.Workflow = trivet.ProvisionRunning, "", m.Name, w.Name
	p.Status.Attempts++
	if p.Status.Started.IsZero() {
		p.Status.Started = f.now()
	}
	return f.Provisions.In(c.tx).Put(p)
}

// render makes the workflow: everything the agent will need, by value or digest.
func (f *Fleet) render(c *change, p *trivet.Provision) (*trivet.Workflow, map[string]trivet.Limit, error) {
	t, err := f.Templates.In(c.tx).Get(p.Spec.Template)
	if err != nil {
		return nil, nil, err
	}
	actions, err := workflow.Render(t, f.data(c.machine, p))
	if err != nil {
		return nil, nil, err
	}
	if err := workflow.CheckRendered(actions); err != nil {
		return nil, nil, err
	}
	images, err := f.images(c.tx, actions)
	if err != nil {
		return nil, nil, err
	}
	return &trivet.Workflow{
		Meta: trivet.Meta{
			Kind: "Workflow", Name: f.workflowName(p), Labels: p.Labels,
		},
		Spec: trivet.WorkflowSpec{
			Machine: c.machine.Name, Provision: p.Name, Template: t.Name, Attempt: p.Status.Attempts + 1,
			Epoch: c.machine.Status.Epoch, Actions: actions, Images: images, Disk: c.machine.Spec.Disk,
			Seed: trivet.Seed{
				Hostname: hostname(c.machine, p), SSHKeys: p.Spec.SSHKeys, UserData: p.Spec.UserData,
				NetworkData: p.Spec.NetworkData,
			},
		},
	}, t.Spec.Limits, nil
}

// workflowName counts on from the runs that are kept of this provision, and of one of its name that was deleted.
func (f *Fleet) workflowName(p *trivet.Provision) string {
	next := p.Status.Attempts + 1
	for _, w := range f.Workflows.SharedBy(state.ByProvision, p.Name) {
		if n, err := strconv.Atoi(strings.TrimPrefix(w.Name, p.Name+"-")); err == nil {
			next = max(next, n+1)
		}
	}
	return fmt.Sprintf("%s-%d", p.Name, next)
}

// images looks up every image that an action names, so that the run has it by digest.
func (f *Fleet) images(tx *store.Tx, actions []trivet.Action) ([]trivet.ImageRef, error) {
	var refs []trivet.ImageRef
	for i, a := range actions {
		for _, name := range actionspec.Images(a) {
			if slices.ContainsFunc(refs, func(r trivet.ImageRef) bool { return r.Name == name }) {
				continue
			}
			image, err := f.Images.In(tx).Get(name)
			if err != nil {
				return nil, fmt.Errorf("spec.actions[%d].with.image: %w", i, err)
			}
			refs = append(refs, trivet.ImageRef{Name: name, ImageSpec: image.Spec})
		}
	}
	return refs, nil
}

func (f *Fleet) data(m *trivet.Machine, p *trivet.Provision) workflow.Data {
	d := workflow.Data{Params: p.Spec.Parameters, Provision: workflow.ProvisionData{Name: p.Name, Hostname: hostname(m, p)}}
	d.Machine = workflow.MachineData{Name: m.Name, Arch: m.Spec.Arch, Rack: m.Spec.Rack, Labels: m.Labels}
	for _, nic := range m.Spec.NICs {
		d.Machine.MACs = append(d.Machine.MACs, nic.MAC)
	}
	if inv := m.Status.Inventory; inv != nil {
		d.Machine.Vendor, d.Machine.Product, d.Machine.Serial, d.Machine.UUID = inv.Vendor, inv.Product, inv.Serial, inv.UUID
	}
	if n := f.network(m); n != nil {
		address, _, _ := strings.Cut(n.Address, "/")
		d.Network = workflow.NetworkData{Address: address, CIDR: n.Address, Gateway: n.Gateway, Domain: n.Domain, DNS: n.DNS}
	}
	return d
}

func hostname(m *trivet.Machine, p *trivet.Provision) string {
	if p.Spec.Hostname != "" {
		return p.Spec.Hostname
	}
	return m.Name
}

// pend lets the provision say what it waits for.
func (f *Fleet) pend(ctx context.Context, provision, why string) error {
	return f.onProvision(ctx, provision, func(p *trivet.Provision) bool {
		same := p.Status.State == trivet.ProvisionPending && p.Status.Reason == why
		p.Status.State, p.Status.Reason = trivet.ProvisionPending, why
		return !same
	})
}

// refuse ends a provision that no machine could ever serve.
func (f *Fleet) refuse(ctx context.Context, provision string, cause error) error {
	return f.onProvision(ctx, provision, func(p *trivet.Provision) bool {
		p.Status.State, p.Status.Reason, p.Status.Ended = trivet.ProvisionFailed, cause.Error(), f.now()
		p.Status.Failure = &trivet.Failure{Type: trivet.FaultConfiguration, Cause: cause.Error()}
		return true
	})
}

// onProvision changes a provision that has no machine yet.
func (f *Fleet) onProvision(ctx context.Context, name string, do func(*trivet.Provision) bool) error {
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
