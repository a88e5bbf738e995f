package fleet

import (
	"errors"
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
	template, err := f.Templates.In(t.tx).Get(trivet.Resolve(p.Project, p.Spec.Template))
	if err != nil {
		return nil, nil, err
	}
	actions, err := workflow.Render(template, templateData(t.machine, p, network))
	if err != nil {
		return nil, nil, fmt.Errorf("template %s: %w", p.Spec.Template, err)
	}
	if err := workflow.CheckRendered(actions); err != nil {
		return nil, nil, err
	}
	images, err := f.images(t.tx, p, template, actions)
	if err != nil {
		return nil, nil, err
	}
	name, err := f.workflowName(t.tx, p)
	if err != nil {
		return nil, nil, err
	}
	w := &trivet.Workflow{
		Meta: trivet.Meta{Kind: "Workflow", Project: p.Project, Name: name, Labels: p.Labels},
		Spec: trivet.WorkflowSpec{
			Machine: t.machine.Name, MachineUID: t.machine.UID, Provision: p.Name, ProvisionUID: p.UID,
			Template: p.Spec.Template, Attempt: p.Status.Attempts + 1,
			Epoch: t.machine.Status.Epoch, Actions: actions, Images: images, Disk: t.machine.Spec.Disk,
			Seed: trivet.Seed{
				Hostname: hostname(t.machine, p), SSHKeys: p.Spec.SSHKeys, UserData: p.Spec.UserData,
				NetworkData: p.Spec.NetworkData,
			},
		},
	}
	if p.Spec.NetworkData == "" {
		w.Spec.Seed.Interfaces = t.machine.Spec.Interfaces
	}
	if err := checkHead(p, w, network); err != nil {
		return nil, nil, err
	}
	return w, template.Spec.Limits, f.checkNeeds(t, w, template)
}

// workflowName numbers the runs of a provision, and of a deleted one of its name whose runs are kept. Of those that are
// former it does not read all: it tries numbers at growing distances.
func (f *Fleet) workflowName(tx *store.Tx, p *trivet.Provision) (string, error) {
	next := p.Status.Attempts + 1
	for _, w := range f.Workflows.SharedBy(state.ByProvision, p.FullName()) {
		if n, err := strconv.Atoi(strings.TrimPrefix(w.Name, p.Name+"-")); err == nil {
			next = max(next, n+1)
		}
	}
	for distance := 1; ; distance *= 2 {
		name := fmt.Sprintf("%s-%d", p.Name, next)
		_, err := f.Workflows.In(tx).Former(trivet.FullName(p.Project, name))
		switch {
		case errors.Is(err, trivet.ErrNotFound):
			return name, nil
		case err != nil && !errors.Is(err, trivet.ErrInvalid): // one that cannot be read has the name
			return "", err
		}
		next += distance
	}
}

// images looks up every image that an action names, so that the run has it by digest. Afterwards the actions name the
// images as the run's project does.
func (f *Fleet) images(tx *store.Tx, p *trivet.Provision, t *trivet.Template, actions []trivet.Action) (
	[]trivet.ImageRef, error) {
	var refs []trivet.ImageRef
	for i, a := range actions {
		use, ok := actionspec.UsedImage(a)
		if !ok {
			continue
		}
		full, err := imageName(p.Project, t.Project, use.Name)
		if err != nil {
			field := fmt.Sprintf("spec.actions[%d].with.image", i)
			return nil, &trivet.FieldError{Field: field, Problem: err.Error()}
		}
		name := trivet.RelativeName(p.Project, full)
		a.With["image"] = name
		image, err := f.Images.In(tx).Get(full)
		if errors.Is(err, trivet.ErrNotFound) {
			return nil, &trivet.FieldError{Field: fmt.Sprintf("spec.actions[%d].with.image", i),
				Problem: fmt.Sprintf("names image %s, which does not exist", name)}
		}
		if err == nil {
			field := fmt.Sprintf("spec.actions[%d].with.image", i)
			err = wrongFormat(field, "names ", a, name, image)
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(refs, func(r trivet.ImageRef) bool { return r.Name == name }) {
			refs = append(refs, trivet.ImageRef{Name: name, ImageSpec: image.Spec})
		}
	}
	return refs, nil
}

// imageName returns the full name of an image that a template names. A template of the library means its own images,
// and the provision's parameter may name one of the provision's project.
func imageName(provision, template, named string) (full string, err error) {
	full = trivet.Resolve(template, named)
	if project, _ := trivet.SplitName(full); project != provision && project != trivet.SharedProject {
		return "", fmt.Errorf("%q is in another project than the provision", named)
	}
	return full, nil
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
		d.Network = workflow.NetworkData{Name: n.Name, Address: plainAddress(n), CIDR: n.Address, Gateway: n.Gateway,
			Domain: n.Domain,
			DNS:    n.DNS}
	}
	d.Network.Config = networkConfig(m, m.Spec.Interfaces, n)
	return d
}

func hostname(m *trivet.Machine, p *trivet.Provision) string {
	if p.Spec.Hostname != "" {
		return p.Spec.Hostname
	}
	return m.Name
}
