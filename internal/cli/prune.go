package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/ownership"
)

// pruneRecords deletes what the manager has applied and the files no longer have, those first that refer to others. What
// another manager has applied, too, stays. Those of a project are searched in the projects that the files name, and in
// that of the command.
func (a *app) pruneRecords(ctx context.Context, cl *client.Client, manifests []*manifest, o applyOptions) error {
	all, err := a.surplus(ctx, cl, manifests, o.manager)
	if err != nil || len(all) == 0 {
		return err
	}
	if o.dryRun {
		for _, t := range all {
			fmt.Fprintf(a.Out, "%s deleted (dry run)\n", a.titleOf(t))
		}
		return nil
	}
	if !o.yes {
		var text strings.Builder
		fmt.Fprintf(&text, "These records, applied by %q, are not in the files, and are deleted:\n", o.manager)
		for _, t := range all {
			fmt.Fprintf(&text, "  %s\n", a.titleOf(t))
		}
		if err := a.confirm("prune", text.String()); err != nil {
			return err
		}
	}
	return a.deleteAll(ctx, cl, all, false, true)
}

// titleOf returns the name of a record, with its project where that is not the command's.
func (a *app) titleOf(t target) string {
	if t.info.Scope == trivet.ScopeProject && t.project != a.project() {
		return title(t.info, trivet.FullName(t.project, t.name))
	}
	return title(t.info, t.name)
}

// surplus returns the records to prune, in the order of their deletion.
func (a *app) surplus(ctx context.Context, cl *client.Client, manifests []*manifest, manager string) ([]target, error) {
	wanted, projects := map[string]bool{}, []string{a.project()}
	for _, m := range manifests {
		wanted[title(m.info, m.fullName(a))] = true
		projects = append(projects, m.project(a))
	}
	slices.Sort(projects)
	projects = slices.Compact(projects)
	var all []target
	for _, info := range trivet.Kinds {
		in := projects
		if info.Scope != trivet.ScopeProject {
			in = in[:1]
		}
		for _, project := range in {
			found, err := surplusOf(ctx, cl.Kind(info).In(project), manager, wanted)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	slices.SortStableFunc(all, func(x, y target) int { return depth(y.info.Kind) - depth(x.info.Kind) })
	return all, nil
}

// surplusOf returns the records of one kind to prune.
func surplusOf(ctx context.Context, kind client.Kind, manager string, wanted map[string]bool) (all []target, err error) {
	if kind.Info.ReadOnly {
		return nil, nil
	}
	records, _, err := kind.List(ctx, client.ListOptions{Fields: "managed." + manager + "!="})
	if errors.Is(err, trivet.ErrForbidden) {
		return nil, nil // nor can they have been applied by this account
	}
	for _, r := range records {
		head := r.Header()
		if wanted[title(kind.Info, head.FullName())] || alsoApplied(head, manager) {
			continue
		}
		all = append(all, target{kind.Info, head.Project, head.Name})
	}
	return all, err
}

// alsoApplied reports whether another manager has applied a record, or this one has not.
func alsoApplied(head *trivet.Meta, manager string) bool {
	_, mine := head.Managed[manager]
	delete(head.Managed, manager)
	delete(head.Managed, ownership.Direct)
	return !mine || len(head.Managed) > 0
}
