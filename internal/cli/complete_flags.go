package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/reference"
)

// pairs is how names with values are completed: without a space after the "=".
const pairs = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace

// completeParams completes NAME=VALUE by the parameters of the template of --template: their defaults, and the images
// where the name says that it is one.
func (a *app) completeParams(cmd *cobra.Command, _ []string, typed string) (
	all []cobra.Completion, d cobra.ShellCompDirective) {
	template, err := cmd.Flags().GetString("template")
	if err != nil || template == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, err := a.kind("templates")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeTimeout)
	defer cancel()
	r, err := kind.Get(ctx, template)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	name, _, valued := strings.Cut(typed, "=")
	for _, p := range r.(*trivet.Template).Spec.Parameters {
		switch {
		case !valued:
			all = append(all, cobra.CompletionWithDesc(p.Name+"=", p.Description))
		case p.Name == name && p.Default != nil:
			all = append(all, name+"="+*p.Default)
		}
	}
	if !valued {
		return all, pairs
	}
	if strings.Contains(strings.ToLower(name), "image") {
		images, _ := a.names(ctx, "images", nil)
		for _, image := range images {
			all = append(all, name+"="+image)
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// completeContexts completes the name of a context of the config file.
func completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, err := client.FilePath()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	f, err := client.ReadFile(path)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(f.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// completeSelector completes KEY=VALUE by the labels of the records of the kind that is named first.
func (a *app) completeSelector(cmd *cobra.Command, args []string, _ string) (
	[]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, err := a.kind(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeTimeout)
	defer cancel()
	records, _, err := kind.List(ctx, client.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	labels := map[string]bool{}
	for _, r := range records {
		for key, value := range r.Header().Labels {
			labels[key+"="+value] = true
		}
	}
	return slices.Sorted(maps.Keys(labels)), cobra.ShellCompDirectiveNoFileComp
}

// completeFieldSelector completes FIELD=VALUE of the kind that is named first: its fields, and the values of one that
// has certain ones only.
func completeFieldSelector(cmd *cobra.Command, args []string, typed string) (
	all []cobra.Completion, d cobra.ShellCompDirective) {
	name, _, valued := strings.Cut(typed, "=")
	if len(args) == 0 || !valued {
		all, d = completeFieldsOf(cmd, args, typed)
		return all, d
	}
	info, err := lookupKind(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_, field, err := reference.Lookup(string(info.Kind) + "." + name)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, v := range field.Values {
		all = append(all, name+"="+valueText(reference.Value{Value: v.Value}))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
