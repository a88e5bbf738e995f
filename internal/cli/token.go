package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) token() *cobra.Command {
	c := &cobra.Command{Use: "token", Short: "Create and revoke API tokens"}
	var ttl string
	issue := &cobra.Command{
		Use:   "issue ACCOUNT",
		Short: "Create an API token for an account; it is shown only once",
		Long: "Create an API token for an account; it is shown only once, on the standard output. It expires after\n" +
			"spec.tokenLifetime of the site, by default 90 days. Revoke it with trivet token revoke ID. How it is used\n" +
			"on another computer is printed on the standard error.",
		Example: "  trivet token issue alice\n  trivet token issue ci --ttl 720h",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("accounts"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := tokenRequest(args[0], ttl)
			if err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			t, err := cl.IssueToken(cmd.Context(), req)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, t.Token)
			fmt.Fprintf(a.Err, "token/%s %s\n%s", t.Name, expiryText(t.Expires), a.loginText(cl))
			return nil
		},
	}
	issue.Flags().StringVar(&ttl, "ttl", "", `how long the token is valid, such as 720h, or "never"`)
	var yes bool
	revoke := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke an API token, after a question",
		Long: "Revoke an API token. Its ID is the name in trivet get tokens, and the part of the token between\n" +
			"trivet_ and the next underscore.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("tokens"),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := a.kind("tokens")
			if err != nil {
				return err
			}
			if !yes {
				err := a.confirmDelete(cmd.Context(), kind.Client(), []target{{info: kind.Info, name: args[0]}})
				if err != nil {
					return err
				}
			}
			if err := kind.Delete(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "token/%s revoked\n", args[0])
			return nil
		},
	}
	yesFlag(revoke, &yes)
	c.AddCommand(issue, revoke)
	return c
}

// loginText says how a token is used elsewhere, where this program verifies the cluster by pins: with certificates,
// what else has to be given to the other person is not known.
func (a *app) loginText(cl *client.Client) string {
	cfg, err := client.Environment(a.context)
	if err != nil || !strings.HasPrefix(cfg.Trust, "sha256:") {
		return ""
	}
	return fmt.Sprintf("to use it: trivet login --endpoint %s --trust %s\n", cl.Endpoints()[0], cfg.Trust)
}

// tokenRequest returns the request for a token that is valid for ttl: a duration, never, or empty for the default.
func tokenRequest(account, ttl string) (trivet.TokenRequest, error) {
	req := trivet.TokenRequest{Account: account, Never: ttl == "never"}
	if ttl == "" || req.Never {
		return req, nil
	}
	d, err := time.ParseDuration(ttl)
	if err != nil || d <= 0 {
		return req, fmt.Errorf(`%w: --ttl is %q; write a duration such as 720h, or "never"`, trivet.ErrInvalid, ttl)
	}
	req.Expires = time.Now().Add(d).UTC().Truncate(time.Second)
	return req, nil
}

func expiryText(at time.Time) string {
	if at.IsZero() {
		return "never expires"
	}
	return "expires at " + at.Local().Format(time.DateTime)
}

func (a *app) whoami() *cobra.Command {
	c := &cobra.Command{
		Use: "whoami", Short: "Show the account of the token in use, and when it expires", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			who, err := cl.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			if a.output != "table" {
				return a.showValue(who)
			}
			fmt.Fprintf(a.Out, "account/%s (%s), token/%s %s\n", who.Account, who.Role, who.Token, expiryText(who.Expires))
			return nil
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) version() *cobra.Command {
	var own bool
	c := &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the head that answers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if own {
				return a.ownVersion()
			}
			head, err := a.headVersion(cmd.Context())
			if a.output == "json" {
				return json.NewEncoder(a.Out).Encode(map[string]any{"client": a.Version, "release": trivet.CurrentRelease,
					"head": head})
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
	c.Flags().BoolVar(&own, "client", false, "print that of this program only")
	a.outputFlag(c)
	return c
}

// ownVersion prints the version of this program, by which heads recognize the program of an upgrade.
func (a *app) ownVersion() error {
	if a.output == "json" {
		return json.NewEncoder(a.Out).Encode(map[string]any{"client": a.Version, "release": trivet.CurrentRelease})
	}
	fmt.Fprintf(a.Out, "trivet %s, release %s\n", a.Version, trivet.CurrentRelease)
	return nil
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
