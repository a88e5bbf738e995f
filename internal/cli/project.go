package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// projectVariable is the environment variable with the project where --project is not given.
const projectVariable = "TRIVET_PROJECT"

func (a *app) projectFlag(root *cobra.Command) {
	root.PersistentFlags().StringVarP(&a.projectName, "project", "p", "",
		"project of the records (default: that of "+projectVariable+", or "+trivet.DefaultProject+")")
	root.RegisterFlagCompletionFunc("project", a.completeProjects)
}

// allProjectsFlag adds -A.
func (a *app) allProjectsFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&a.allProjects, "all-projects", "A", false, "records of all projects")
}

// project returns the selected project.
func (a *app) project() string {
	return cmp.Or(a.projectName, os.Getenv(projectVariable), trivet.DefaultProject)
}

// watched returns the project to watch; empty: all.
func (a *app) watched() string {
	if a.allProjects {
		return ""
	}
	return a.project()
}

// within returns the records of the selected project, or of all.
func (a *app) within(k client.Kind) client.Kind { return k.In(a.watched()) }

// flagText returns the flag that a command in a hint needs, with a space before it; empty for the default project.
func (a *app) flagText() string {
	if a.project() == trivet.DefaultProject {
		return ""
	}
	return " -p " + a.project()
}

// hidesProject reports whether the output leaves out the project of a record: a person who uses one project sees none.
func (a *app) hidesProject() bool { return !a.allProjects && a.project() == trivet.DefaultProject }

// workflowBy returns a workflow by its full name.
func workflowBy(ctx context.Context, cl *client.Client, full string) (*trivet.Workflow, error) {
	project, name := trivet.SplitName(full)
	return client.Of[trivet.Workflow](cl).In(project).Get(ctx, name)
}

// completeProjects completes the projects that have templates, images or secrets.
func (a *app) completeProjects(cmd *cobra.Command, _ []string, _ string) (
	[]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeTimeout)
	defer cancel()
	found := map[string]bool{}
	for _, plural := range []string{"templates", "images", "secrets"} {
		k, err := a.kind(plural)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		records, _, err := k.AllProjects().List(ctx, client.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, r := range records {
			found[r.Header().Project] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), cobra.ShellCompDirectiveNoFileComp
}

// checkAll refuses names together with -A.
func (a *app) checkAll(names []string) error {
	if a.allProjects && len(names) > 0 {
		return fmt.Errorf("%w: a name is of one project; use -p instead of -A", trivet.ErrInvalid)
	}
	return nil
}

// projectOfKind returns the selected project where a record of the kind is named and belongs to one.
func (a *app) projectOfKind(kind, name string) string {
	info, err := trivet.LookupKind(kind)
	if err != nil || name == "" || info.Scope != trivet.ScopeProject {
		return ""
	}
	return a.project()
}
