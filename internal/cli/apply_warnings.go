package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// What apply accepts as it may be completed later, and is more often a mistake: it is printed with its line. Each check
// costs a few requests, whatever the number of records. Who may not read the other kind gets no warning.

// warn prints what is suspicious about a record that was applied.
func (a *app) warn(ctx context.Context, cl *client.Client, m *manifest, done applied) error {
	if done.verb == "unchanged" {
		return nil
	}
	var found []*trivet.FieldError
	var err error
	switch r := done.now.(type) {
	case *trivet.Machine:
		found, err = doubtsOfMachine(ctx, cl, r)
	case *trivet.Provision:
		found, err = doubtsOfProvision(ctx, cl, r)
	case *trivet.Template:
		found, err = doubtsOfTemplate(ctx, cl, r)
	}
	if m.has("status") && done.verb == "created" {
		found = append(found, &trivet.FieldError{Field: "status", Problem: "is written by Trivet only: the new record does " +
			"not have it"})
	}
	if a.warned == nil {
		a.warned = map[string]bool{}
	}
	for _, fe := range found {
		if what := fe.Field + fe.Problem; !a.warned[what] { // once, however many records have it
			a.warned[what] = true
			fmt.Fprintln(a.Err, "trivet: warning:", m.locate(fe))
		}
	}
	return err
}

// has reports whether the file has a property of the record.
func (m *manifest) has(name string) bool {
	object, _ := m.value.(map[string]any)
	return object[name] != nil
}

// anyOf reports whether a record of a kind has these labels.
func anyOf(ctx context.Context, cl *client.Client, kind, labels string) (bool, error) {
	info, err := trivet.LookupKind(kind)
	if err != nil {
		return false, err
	}
	return cl.Kind(info).Any(ctx, client.ListOptions{Labels: labels})
}

func doubtsOfMachine(ctx context.Context, cl *client.Client, m *trivet.Machine) ([]*trivet.FieldError, error) {
	if len(m.Spec.NICs) == 0 {
		return []*trivet.FieldError{{Field: "spec.nics", Problem: "is missing: machine " + m.Name + " cannot boot, and no " +
			"provision gets it; write the MAC of the port that it boots from, as nics: [{mac: 52:54:00:12:34:56}]"}}, nil
	}
	i := slices.IndexFunc(m.Spec.NICs, func(n trivet.NIC) bool { return n.Address.IsValid() })
	if i < 0 {
		return nil, nil
	}
	served, err := anyOf(ctx, cl, "Network", "")
	if err != nil || served { // where there are networks, the head has compared the address with them
		_, err = readable(served, err)
		return nil, err
	}
	return []*trivet.FieldError{{Field: fmt.Sprintf("spec.nics[%d].address", i), Problem: "is in no network, as there is " +
		"none; apply a Network whose spec.cidr contains it"}}, nil
}

func doubtsOfProvision(ctx context.Context, cl *client.Client, p *trivet.Provision) ([]*trivet.FieldError, error) {
	if len(p.Spec.Selector) == 0 {
		return nil, nil
	}
	labels := labelsText(p.Spec.Selector)
	matches, err := anyOf(ctx, cl, "Machine", labels)
	if err != nil || matches {
		_, err = readable(matches, err)
		return nil, err
	}
	return []*trivet.FieldError{{Field: "spec.selector", Problem: "matches no machine: none has the labels " + labels +
		"; the labels of machines: trivet get machines -o wide"}}, nil
}

func doubtsOfTemplate(ctx context.Context, cl *client.Client, t *trivet.Template) (all []*trivet.FieldError, err error) {
	for i, action := range t.Spec.Actions {
		name, _ := action.With["image"].(string)
		if trivet.ValidateReference(name) != nil {
			continue // it is chosen by a parameter
		}
		project, own := trivet.SplitName(trivet.Resolve(t.Project, name))
		_, err := client.Of[trivet.Image](cl).In(project).Get(ctx, own)
		if !errors.Is(err, trivet.ErrNotFound) {
			if _, err = readable(0, err); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, &trivet.FieldError{Field: fmt.Sprintf("spec.actions[%d].with.image", i), Problem: fmt.Sprintf(
			"names image %s, which does not exist yet (trivet get images); provisions of the template are refused until then",
			name)})
	}
	return all, nil
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
