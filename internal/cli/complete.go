package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// completeTimeout bounds a completion.
const completeTimeout = 2 * time.Second

// completeRecords completes a kind and then names of it.
func (a *app) completeRecords(
	cmd *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		var kinds []cobra.Completion
		for _, k := range trivet.Kinds {
			kinds = append(kinds, k.Plural)
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
	return a.names(cmd.Context(), args[0], args[1:])
}

// completeRecord completes a kind and then one name of it.
func (a *app) completeRecord(
	cmd *cobra.Command, args []string, toComplete string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeRecords(cmd, args, toComplete)
}

// completeNames completes the name of a record, for commands with one argument.
func (a *app) completeNames(kind string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && !cmd.Flags().Changed("help") && cmd.Args != nil && cmd.Args(cmd, append(args, "x")) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.names(cmd.Context(), kind, args)
	}
}

func (a *app) names(ctx context.Context, kind string, taken []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	k, err := a.kind(kind)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	records, _, err := k.List(ctx, client.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, r := range records {
		if !contains(taken, r.Header().Name) {
			names = append(names, r.Header().Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func contains(list []string, s string) bool {
	for _, have := range list {
		if have == s {
			return true
		}
	}
	return false
}
