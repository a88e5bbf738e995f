package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/trivet-project/trivet"
)

func (a *app) token() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Issue and revoke API tokens"}
	var life time.Duration
	issue := &cobra.Command{
		Use:     "issue ACCOUNT",
		Short:   "Issue an API token; it is shown this once",
		Long:    "Issue an API token of an account; it is shown this once. Revoke it with trivet token revoke ID.",
		Example: "  trivet token issue alice\n  trivet token issue ci --expires 720h",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("accounts"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var expires time.Time
			if life > 0 {
				expires = time.Now().Add(life).UTC().Truncate(time.Second)
			}
			t, err := cl.IssueToken(cmd.Context(), args[0], expires)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, t)
			return nil
		},
	}
	issue.Flags().DurationVar(&life, "expires", 0, "how long it is good for, 720h; none: for ever")
	revoke := &cobra.Command{
		Use:   "revoke ID",
		Short: "Make a token invalid at once",
		Long:  "Make a token invalid at once. Its ID is the part between trivet_ and the next _, and the name in trivet get tokens.",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("tokens"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := a.kind("tokens")
			if err != nil {
				return err
			}
			if err := kind.Delete(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "token %s revoked\n", args[0])
			return nil
		},
	}
	c.AddCommand(issue, revoke)
	return c
}

func (a *app) version() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Show the versions of this program and of the head it speaks to", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			head, err := a.headVersion(cmd.Context())
			if a.output == "json" {
				return json.NewEncoder(a.Out).Encode(map[string]any{"client": a.Version, "head": head})
			}
			fmt.Fprintln(a.Out, "trivet", a.Version)
			if err != nil {
				fmt.Fprintln(a.Out, "head: not reached:", err)
				return nil
			}
			fmt.Fprintf(a.Out, "head %s: %s, of cluster %s\n", head.Head, head.Version, head.Cluster)
			return nil
		},
	}
	a.outputFlag(c)
	return c
}

func (a *app) headVersion(ctx context.Context) (*trivet.Version, error) {
	cl, err := a.connect()
	if err != nil {
		return nil, err
	}
	v, err := cl.Version(ctx)
	if err != nil {
		return nil, err
	}
	return &v, nil
}
