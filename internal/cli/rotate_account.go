package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) rotateAccount() *cobra.Command {
	var ttl string
	var yes bool
	c := &cobra.Command{
		Use: "account NAME", Short: "Replace all tokens of one account by a new one",
		Long: "Replace all tokens of one account by a new one, such as after a laptop was lost: the new token is issued\n" +
			"and printed on the standard output, and then all others are revoked. Where the token in use is one of\n" +
			"them, the context of the config file has the new one before. If it is interrupted, run it again.\n\n" +
			"Tokens that heads have in their data directories stay: trivet head remove revokes that of a head. Programs\n" +
			"that must go on meanwhile get another token first (trivet token issue), and then the old one is revoked\n" +
			"(trivet token revoke).",
		Example: "  trivet rotate account alice\n  trivet rotate account ci --ttl 720h --yes > ci.token",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("accounts"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := tokenRequest(args[0], ttl)
			if err != nil {
				return err
			}
			return a.rotateTokens(cmd.Context(), req, yes)
		},
	}
	c.Flags().StringVar(&ttl, "ttl", "", `how long the new token is valid, such as 720h, or "never"`)
	c.Flags().BoolVar(&yes, "yes", false, "revoke the others without asking")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// rotatedAccount is what a rotation prints as JSON.
type rotatedAccount struct {
	Token   string    `json:"token"`
	Name    string    `json:"name"` // of the token
	Expires time.Time `json:"expires,omitzero"`
	Revoked []string  `json:"revoked"` // names of tokens
}

// rotateTokens issues a token, and revokes all others of its account.
func (a *app) rotateTokens(ctx context.Context, req trivet.TokenRequest, yes bool) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	if _, err := client.Of[trivet.Account](cl).Get(ctx, req.Account); err != nil {
		return err
	}
	who, err := cl.Whoami(ctx)
	if err != nil {
		return err
	}
	old, err := tokensOf(ctx, cl, req.Account, "")
	if err != nil {
		return err
	}
	if !yes && len(old) > 0 {
		if err := a.confirm(ctx, "rotate", revokeText(req.Account, old, who.Token)); err != nil {
			return err
		}
	}
	issued, err := cl.IssueToken(ctx, req)
	if err != nil {
		return err
	}
	if a.output == "table" {
		fmt.Fprintln(a.Out, issued.Token)
	}
	if slices.ContainsFunc(old, func(t *trivet.Token) bool { return t.Name == who.Token }) {
		if cl, err = a.useToken(issued.Token); err != nil {
			return err
		}
		defer cl.Close()
	}
	revoked, err := a.revokeOthers(ctx, cl, req.Account, issued.Name)
	if err != nil {
		return err
	}
	if a.output != "table" {
		return a.showValue(rotatedAccount{issued.Token, issued.Name, issued.Expires, revoked})
	}
	fmt.Fprintf(a.Err, "token/%s %s\nrevoked: %s\n", issued.Name, expiryText(issued.Expires),
		cmp.Or(strings.Join(revoked, ", "), "none"))
	return nil
}

// revokeOthers revokes all tokens of an account but one, also those that are issued meanwhile.
func (a *app) revokeOthers(ctx context.Context, cl *client.Client, account, but string) (revoked []string, err error) {
	revoked = []string{}
	for {
		others, err := tokensOf(ctx, cl, account, but)
		if err != nil || len(others) == 0 {
			return revoked, err
		}
		for _, t := range others {
			err := client.Of[trivet.Token](cl).Delete(ctx, t.Name)
			if err != nil && !errors.Is(err, trivet.ErrNotFound) {
				return nil, a.interrupted(ctx, err, "interrupted at token/%s; run the same command again to revoke the rest",
					t.Name)
			}
			revoked = append(revoked, t.Name)
		}
	}
}

// tokensOf returns the tokens of an account, without one of them, and without those that heads have.
func tokensOf(ctx context.Context, cl *client.Client, account, but string) (all []*trivet.Token, err error) {
	tokens, _, err := client.Of[trivet.Token](cl).List(ctx, client.ListOptions{Fields: "spec.account=" + account})
	for _, t := range tokens {
		if _, ofHead := t.Labels[trivet.HeadLabel]; !ofHead && t.Name != but {
			all = append(all, t)
		}
	}
	return all, err
}

// revokeText says which tokens are revoked.
func revokeText(account string, old []*trivet.Token, inUse string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "A new token of account %s is issued, and these are revoked:\n", account)
	for _, t := range old {
		note := ""
		if t.Name == inUse {
			note = ", the one in use"
		}
		fmt.Fprintf(&b, "  token/%s, issued at %s, %s%s\n", t.Name, t.Created.Local().Format(time.DateTime),
			expiryText(t.Spec.Expires), note)
	}
	return b.String()
}

// useToken writes a token into the context in use, and returns a client that uses it.
func (a *app) useToken(token string) (*client.Client, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, err
	}
	former := cfg.Token
	if cfg.Token = token; os.Getenv("TRIVET_TOKEN") != "" {
		fmt.Fprintln(a.Err, "TRIVET_TOKEN has a token that is revoked; set it to the new one")
	} else if err := client.SaveToken(a.context, former, token); err != nil {
		return nil, &trivet.Error{Op: "rotate", Err: err,
			Hint: "no other token is revoked; save the new one by trivet login, and run it again"}
	}
	return client.New(cfg)
}
