package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// render returns the workflow: everything that the agent will need, by value or digest.
func (f *Fleet) render(t *transition, p *trivet.Provision, network *trivet.RunNetwork) (*trivet.Workflow,
	map[string]trivet.Limit, error) {
	template, err := f.Templates.In(t.tx).Get(p.Spec.Template)
	if err != nil {
		return nil, nil, err
	}
	actions, err := workflow.Render(template, templateData(t.machine, p, network))
	if err != nil {
		return nil, nil, fmt.Errorf("template %s: %w", template.Name, err)
	}
	if err := workflow.CheckRendered(actions); err != nil {
		return nil, nil, err
	}
	images, err := f.images(t.tx, actions)
	if err != nil {
		return nil, nil, err
	}
	return &trivet.Workflow{
		Meta: trivet.Meta{Kind: "Workflow", Name: f.workflowName(p), Labels: p.Labels},
		Spec: trivet.WorkflowSpec{
			Machine: t.machine.Name, MachineUID: t.machine.UID, Provision: p.Name, ProvisionUID: p.UID,
			Template: template.Name, Attempt: p.Status.Attempts + 1,
			Epoch: t.machine.Status.Epoch, Actions: actions, Images: images, Disk: t.machine.Spec.Disk,
			Seed: trivet.Seed{
				Hostname: hostname(t.machine, p), SSHKeys: p.Spec.SSHKeys, UserData: p.Spec.UserData,
				NetworkData: p.Spec.NetworkData,
			},
		},
	}, template.Spec.Limits, nil
}

// workflowName numbers the runs of a provision, and of a deleted one of its name whose runs are kept.
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

// templateData returns what the template's texts can use. n is nil where the machine's network is not known.
func templateData(m *trivet.Machine, p *trivet.Provision, n *trivet.RunNetwork) workflow.Data {
	d := workflow.Data{Params: p.Spec.Parameters, Provision: workflow.ProvisionData{Name: p.Name,
		Hostname: hostname(m, p)}}
	d.Machine = workflow.MachineData{Name: m.Name, Arch: m.Spec.Arch, Rack: m.Spec.Rack, Labels: m.Labels}
	for _, nic := range m.Spec.NICs {
		d.Machine.MACs = append(d.Machine.MACs, nic.MAC)
	}
	if inv := m.Status.Inventory; inv != nil {
		d.Machine.Vendor, d.Machine.Product, d.Machine.Serial, d.Machine.UUID = inv.Vendor, inv.Product, inv.Serial,
			inv.UUID
	}
	if n != nil {
		address, _, _ := strings.Cut(n.Address, "/")
		d.Network = workflow.NetworkData{Name: n.Name, Address: address, CIDR: n.Address, Gateway: n.Gateway, Domain: n.Domain,
			DNS: n.DNS}
	}
	return d
}

func hostname(m *trivet.Machine, p *trivet.Provision) string {
	if p.Spec.Hostname != "" {
		return p.Spec.Hostname
	}
	return m.Name
}
