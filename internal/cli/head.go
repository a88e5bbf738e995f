package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
)

func (a *app) head() *cobra.Command {
	c := &cobra.Command{
		Use: "head", Short: "Let heads join the cluster, list them, and take them out",
		Example: "  trivet head token            # on any head; then run what it prints on the new one\n" +
			"  trivet head list\n  trivet head remove head1",
	}
	c.AddCommand(a.headList(), a.headToken(), a.headRemove())
	return c
}

func (a *app) headList() *cobra.Command {
	list := a.get()
	list.Use, list.Short, list.Long, list.Args = "list", "List the heads", "", cobra.NoArgs
	list.Example = "  trivet head list\n  trivet head list -o json"
	run := list.RunE
	list.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd, []string{"heads"}) }
	return list
}

func (a *app) headToken() *cobra.Command {
	var witness bool
	var life time.Duration
	c := &cobra.Command{
		Use:   "token",
		Short: "Issue a token that lets one head join, once; it is shown this once",
		Long: "Issue a token that lets one head join, once, and show the command to run there. The token is a secret until it is\n" +
			"used or has expired: whoever has it can become a head.",
		Example: "  trivet head token\n  trivet head token --life 10m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			role := trivet.RoleVoter
			if witness {
				role = trivet.RoleWitness
			}
			token, expires, err := cl.IssueJoin(cmd.Context(), role, life)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, token)
			fmt.Fprintf(a.Err, "On the new head, until %s:\n  trivet server --join %s --token TOKEN\n",
				expires.Local().Format(time.DateTime), strings.Join(cl.Endpoints(), ","))
			return nil
		},
	}
	c.Flags().BoolVar(&witness, "witness", false, "for a witness, which votes and serves nothing")
	c.Flags().DurationVar(&life, "life", 0, "how long it is good for (default 1h)")
	return c
}

func (a *app) headRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a head out of the cluster for good",
		Long: "Take a head out of the cluster for good; it need not run. Its name is not given again. Its data stays where it is,\n" +
			"but it does not get back in with that.",
		Example: "  trivet head remove head1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("heads"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			if err := cl.RemoveHead(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "head/%s is being removed\n", args[0])
			return nil
		},
	}
}
