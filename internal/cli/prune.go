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

// pruneRecords deletes the records that the manager has created by an apply and the files no longer have, those first
// that refer to others. What another manager has applied, too, stays. Those of a project are searched in the projects
// that the files name, and in that of the command.
func (a *app) pruneRecords(ctx context.Context, cl *client.Client, manifests []*manifest, o applyOptions) error {
	all, err := a.surplus(ctx, cl, manifests, o.Manager)
	if err != nil || len(all) == 0 {
		return err
	}
	if !o.yes && !o.dryRun {
		if err := a.confirm(ctx, "prune", a.pruneText(o.Manager, all)); err != nil {
			return err
		}
	}
	failed := false
	for _, s := range all {
		// A dry run could be refused for what refers to the record, and would be deleted before it.
		if !o.dryRun {
			if err := s.remove(ctx, cl.Kind(s.info).In(s.project), o.Manager); err != nil {
				failed = true
				PrintError(a.Err, err)
				continue
			}
		}
		fmt.Fprintf(a.Out, "%s deleted%s\n", a.titleOf(s.target), o.note())
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// pruneText says what is deleted.
func (a *app) pruneText(manager string, all []surplus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "These records were created by %q, are not in the files, and are deleted:\n", manager)
	for _, s := range all {
		note := ""
		if s.info.Kind == "Provision" {
			note = ": its machine is released, and powered off"
		}
		fmt.Fprintf(&b, "  %s%s\n", a.titleOf(s.target), note)
	}
	return b.String()
}

// surplus is a record to prune.
type surplus struct {
	target
	uid string
}

// remove deletes the record, unless it was changed since it was listed: a person may have taken long to confirm.
func (s surplus) remove(ctx context.Context, kind client.Kind, manager string) error {
	now, err := kind.Get(ctx, s.name)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	if err == nil && (now.Header().UID != s.uid || !isOnlyOf(now.Header(), manager)) {
		err = &trivet.Error{Op: "prune", Kind: s.info.Kind, Name: s.name, Hint: "run the same command again",
			Err: fmt.Errorf("%w: it was changed meanwhile", trivet.ErrConflict)}
	}
	if err == nil {
		_, err = kind.Remove(ctx, s.name)
	}
	return err
}

// titleOf returns the name of a record, with its project where that is not the command's.
func (a *app) titleOf(t target) string {
	if t.info.Scope == trivet.ScopeProject && t.project != a.project() {
		return title(t.info, trivet.FullName(t.project, t.name))
	}
	return title(t.info, t.name)
}

// surplus returns the records to prune, in the order of their deletion.
func (a *app) surplus(ctx context.Context, cl *client.Client, manifests []*manifest,
	manager string) ([]surplus, error) {
	wanted, projects := map[string]bool{}, []string{a.project()}
	for _, m := range manifests {
		wanted[title(m.info, m.fullName(a))] = true
		projects = append(projects, m.project(a))
	}
	slices.Sort(projects)
	projects = slices.Compact(projects)
	var all []surplus
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
	slices.SortStableFunc(all, func(x, y surplus) int { return depth(y.info.Kind) - depth(x.info.Kind) })
	return all, nil
}

// surplusOf returns the records of one kind to prune.
func surplusOf(ctx context.Context, kind client.Kind, manager string, wanted map[string]bool) (
	all []surplus, err error) {
	if kind.Info.ReadOnly {
		return nil, nil
	}
	records, _, err := kind.List(ctx, client.ListOptions{Fields: "creator=" + manager})
	if errors.Is(err, trivet.ErrForbidden) {
		return nil, nil // nor can they have been applied by this account
	}
	for _, r := range records {
		head := r.Header()
		if !wanted[title(kind.Info, head.FullName())] && isOnlyOf(head, manager) {
			all = append(all, surplus{target{kind.Info, head.Project, head.Name}, head.UID})
		}
	}
	return all, err
}

// isOnlyOf reports whether a manager has created a record, and no other one has applied fields of it.
func isOnlyOf(head *trivet.Meta, manager string) bool {
	for other := range head.Managed {
		if other != manager && other != ownership.Direct {
			return false
		}
	}
	return head.Creator == manager
}
