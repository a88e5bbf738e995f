package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// What apply accepts as it may be completed later, and is more often a mistake: it is printed with its line. Each
// question is sent to a head once, however many records it is about. Who may not read the other kind gets no warning.

// doubts are what is suspicious about the records of an apply.
type doubts struct {
	cl     *client.Client
	exists map[string]bool // the answers, by what was looked for
	warned map[string]bool // what was printed
}

// newDoubts returns the doubts about the records of files. Images that the files have are there when all is applied.
func (a *app) newDoubts(cl *client.Client, manifests []*manifest) *doubts {
	d := &doubts{cl: cl, exists: map[string]bool{}, warned: map[string]bool{}}
	for _, m := range manifests {
		if m.info.Kind == "Image" {
			d.exists["image "+m.fullName(a)] = true
		}
	}
	return d
}

// warn prints what is suspicious about a record that was applied. What cannot be found out does not end the apply.
func (a *app) warn(ctx context.Context, d *doubts, m *manifest, done applied) {
	if done.verb == "unchanged" {
		return
	}
	var found []*trivet.FieldError
	var err error
	switch r := done.now.(type) {
	case *trivet.Machine:
		found, err = d.ofMachine(ctx, r)
	case *trivet.Provision:
		found, err = d.ofProvision(ctx, r)
	case *trivet.Template:
		found, err = d.ofTemplate(ctx, r)
	case *trivet.Secret:
		if len(r.Spec.Data) == 0 { // another tool may write the values
			found = append(found, &trivet.FieldError{Field: "spec.data", Problem: "is missing: what uses secret " + r.Name +
				" finds no value; write the values by their keys, as data: {user: NAME, password: VALUE}"})
		}
	}
	if m.has("status") && done.verb == "created" {
		found = append(found, &trivet.FieldError{Field: "status", Problem: "is written by Trivet only: the new record does " +
			"not have it"})
	}
	for _, fe := range found {
		d.print(a, fe.Field+fe.Problem, m.locate(fe))
	}
	if err != nil && ctx.Err() == nil {
		d.print(a, "", fmt.Errorf("what %s refers to was not looked up: %w", m.title(), err))
	}
}

// print prints a warning once, however many records have it.
func (d *doubts) print(a *app, what string, warning any) {
	if !d.warned[what] {
		d.warned[what] = true
		fmt.Fprintln(a.Err, "trivet: warning:", warning)
	}
}

// has reports whether the file has a property of the record.
func (m *manifest) has(name string) bool {
	object, _ := m.value.(map[string]any)
	return object[name] != nil
}

// find reports whether something exists, or whether that is not known: it cannot be read.
func (d *doubts) find(what string, request func() (bool, error)) (bool, error) {
	if exists, known := d.exists[what]; known {
		return exists, nil
	}
	exists, err := request()
	d.exists[what] = exists || err != nil
	_, err = readable(exists, err) // an older head lacks the kind
	return d.exists[what], err
}

// anyOf reports whether a record of a kind has these labels.
func (d *doubts) anyOf(ctx context.Context, kind, labels string) (bool, error) {
	info, err := trivet.LookupKind(kind)
	if err != nil {
		return false, err
	}
	return d.find(kind+" "+labels, func() (bool, error) {
		return d.cl.Kind(info).Any(ctx, client.ListOptions{Labels: labels})
	})
}

func (d *doubts) ofMachine(ctx context.Context, m *trivet.Machine) ([]*trivet.FieldError, error) {
	if len(m.Spec.NICs) == 0 {
		return []*trivet.FieldError{{Field: "spec.nics", Problem: "is missing: machine " + m.Name + " cannot boot, and no " +
			"provision gets it; write the MAC of the port that it boots from, as nics: [{mac: 52:54:00:12:34:56}]"}}, nil
	}
	i := slices.IndexFunc(m.Spec.NICs, func(n trivet.NIC) bool { return n.Address.IsValid() })
	if i < 0 {
		return nil, nil
	}
	served, err := d.anyOf(ctx, "Network", "")
	if err != nil || served { // where there are networks, the head has compared the address with them
		return nil, err
	}
	return []*trivet.FieldError{{Field: fmt.Sprintf("spec.nics[%d].address", i), Problem: "is in no network, as there " +
		"is none; apply a Network whose spec.cidr contains it"}}, nil
}

func (d *doubts) ofProvision(ctx context.Context, p *trivet.Provision) ([]*trivet.FieldError, error) {
	if len(p.Spec.Selector) == 0 {
		return nil, nil
	}
	labels := labelsText(p.Spec.Selector)
	matches, err := d.anyOf(ctx, "Machine", labels)
	if err != nil || matches {
		return nil, err
	}
	return []*trivet.FieldError{{Field: "spec.selector", Problem: "matches no machine: none has the labels " + labels +
		"; the labels of machines: trivet get machines -o wide"}}, nil
}

func (d *doubts) ofTemplate(ctx context.Context, t *trivet.Template) (all []*trivet.FieldError, err error) {
	for i, action := range t.Spec.Actions {
		name, _ := action.With["image"].(string)
		if trivet.ValidateReference(name) != nil {
			continue // it is chosen by a parameter
		}
		exists, err := d.image(ctx, trivet.Resolve(t.Project, name))
		if err != nil {
			return all, err
		}
		if !exists {
			all = append(all, &trivet.FieldError{Field: fmt.Sprintf("spec.actions[%d].with.image", i), Problem: fmt.Sprintf(
				"names image %s, which does not exist yet (trivet get images); provisions of the template are refused until then",
				name)})
		}
	}
	return all, nil
}

// image reports whether an image exists.
func (d *doubts) image(ctx context.Context, fullName string) (bool, error) {
	return d.find("image "+fullName, func() (bool, error) {
		project, own := trivet.SplitName(fullName)
		_, err := client.Of[trivet.Image](d.cl).In(project).Get(ctx, own)
		if errors.Is(err, trivet.ErrNotFound) {
			return false, nil
		}
		return true, err
	})
}

// newProjects prints which projects of the manifests have no records yet: a project begins with its first record, so
// that a misspelt one is a new one.
func (a *app) newProjects(ctx context.Context, cl *client.Client, manifests []*manifest) error {
	checked := map[string]bool{"": true, trivet.DefaultProject: true, trivet.SharedProject: true}
	for _, m := range manifests {
		project := ""
		if m.info.Scope == trivet.ScopeProject {
			project = m.project(a)
		}
		if checked[project] {
			continue
		}
		checked[project] = true
		exists, err := hasRecords(ctx, cl, project)
		if err != nil {
			return err
		}
		if !exists {
			fmt.Fprintln(a.Err, "trivet: warning:", m.locate(&trivet.FieldError{Field: "project", Problem: fmt.Sprintf(
				"%s is new: it has no records yet; those of all projects: trivet get templates -A", project)}))
		}
	}
	return nil
}

// hasRecords reports whether a project has records that the caller may read.
func hasRecords(ctx context.Context, cl *client.Client, project string) (bool, error) {
	for _, info := range trivet.Kinds {
		if info.Scope != trivet.ScopeProject || info.ReadOnly {
			continue
		}
		found, err := readable(cl.Kind(info).In(project).Any(ctx, client.ListOptions{}))
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}
