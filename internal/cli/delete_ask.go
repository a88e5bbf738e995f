package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// yesFlag adds --yes to a command that asks.
func yesFlag(c *cobra.Command, yes *bool) { c.Flags().BoolVar(yes, "yes", false, "do not ask") }

// confirmDelete says what the deletion of records does besides, and asks whether that is wanted.
func (a *app) confirmDelete(ctx context.Context, cl *client.Client, targets []target) error {
	var text strings.Builder
	for _, t := range targets {
		one, err := a.consequences(ctx, cl, t)
		if err != nil && !errors.Is(err, trivet.ErrNotFound) { // the deletion says so
			return err
		}
		text.WriteString(one)
	}
	if text.Len() == 0 {
		return nil
	}
	return a.confirm(ctx, "delete", text.String())
}

// consequences says what the deletion of a record does besides; empty: nothing.
func (a *app) consequences(ctx context.Context, cl *client.Client, t target) (string, error) {
	switch t.info.Kind {
	case "Provision":
		p, err := client.Of[trivet.Provision](cl).In(t.project).Get(ctx, t.name)
		if err != nil || p.Spec.Count == nil && p.Status.Machine == "" {
			return "", err
		}
		return a.provisionConsequences(ctx, cl, p)
	case "Machine":
		m, err := client.Of[trivet.Machine](cl).Get(ctx, t.name)
		used := m != nil && (m.Status.State == trivet.MachineActive || m.Status.HoldsData != "")
		if err != nil || !used || m.Status.Provision != "" { // with a provision it is refused
			return "", err
		}
		return fmt.Sprintf("machine/%s is %s. What runs on it goes on, and Trivet no longer knows it; its disks are not "+
			"wiped.\n", m.Name, m.Status.State), nil
	case "Account":
		_, err := client.Of[trivet.Account](cl).Get(ctx, t.name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("account/%s can no longer log in: its tokens are refused from then on.\n", t.name), nil
	case "Token":
		k, err := client.Of[trivet.Token](cl).Get(ctx, t.name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("token/%s of account %s is refused from then on.\n", t.name, k.Spec.Account), nil
	}
	return "", nil
}

func (a *app) provisionConsequences(ctx context.Context, cl *client.Client, p *trivet.Provision) (string, error) {
	site, err := client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return "", err
	}
	if err != nil {
		site = &trivet.Site{}
	}
	mode := site.Spec.ReleaseOrDefault()
	if p.Spec.Count != nil {
		if *p.Spec.Count == 1 {
			return fmt.Sprintf("provision/%s has 1 member, which is deleted, too. Its machine is released, with %s: what "+
				"runs on it is stopped.\n", p.Name, mode), nil
		}
		return fmt.Sprintf("provision/%s has %d members, which are deleted, too. Their machines are released, each with %s: "+
			"what runs on them is stopped.\n", p.Name, *p.Spec.Count, mode), nil
	}
	m, err := client.Of[trivet.Machine](cl).Get(ctx, p.Status.Machine)
	if err != nil {
		return "", err
	}
	return releaseText(m, mode), nil
}
