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
	c := &cobra.Command{Use: "token", Short: "Create and revoke API tokens"}
	var ttl time.Duration
	issue := &cobra.Command{
		Use:     "issue ACCOUNT",
		Short:   "Create an API token for an account; it is shown only once",
		Long:    "Create an API token for an account; it is shown only once. Revoke it with trivet token revoke ID.",
		Example: "  trivet token issue alice\n  trivet token issue ci --ttl 720h",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("accounts"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var expires time.Time
			if ttl > 0 {
				expires = time.Now().Add(ttl).UTC().Truncate(time.Second)
			}
			t, err := cl.IssueToken(cmd.Context(), args[0], expires)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, t)
			return nil
		},
	}
	issue.Flags().DurationVar(&ttl, "ttl", 0, "how long the token is valid, such as 720h (default: forever)")
	revoke := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an API token",
		Long: "Revoke an API token. Its ID is the name in trivet get tokens, and the part of the token between\n" +
			"trivet_ and the next underscore.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("tokens"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := a.kind("tokens")
			if err != nil {
				return err
			}
			if err := kind.Delete(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "token/%s revoked\n", args[0])
			return nil
		},
	}
	c.AddCommand(issue, revoke)
	return c
}

func (a *app) version() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the head that answers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			head, err := a.headVersion(cmd.Context())
			if a.output == "json" {
				return json.NewEncoder(a.Out).Encode(map[string]any{"client": a.Version, "head": head})
			}
			fmt.Fprintln(a.Out, "trivet", a.Version)
			if err != nil {
				fmt.Fprintln(a.Out, "head: unreachable:", err)
				return nil
			}
			fmt.Fprintf(a.Out, "head %s: %s, cluster %s\n", head.Head, head.Version, head.Cluster)
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
