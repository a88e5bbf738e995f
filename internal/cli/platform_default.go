package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) platformSetDefault() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "set-default PLATFORM",
		Short: "Set the platform that machines without one of their own netboot",
		Long: "Set the platform that machines without one of their own netboot, from their next netboot on. Before that,\n" +
			"all heads verify their copies of it: where a head that responds has a damaged copy, or none, nothing is\n" +
			"changed. To go back, set the former one.",
		Example: "  trivet platform set-default debian-13",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeNames("platforms"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			p, err := client.Of[trivet.Platform](cl).Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := a.verifyPlatform(cmd.Context(), cl, p, force); err != nil {
				return err
			}
			if err := a.setDefaultPlatform(cmd.Context(), cl, p.Name); err != nil {
				return err
			}
			return a.warnOfOtherArch(cmd.Context(), cl, p)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "set it also where a head has no good copy of it")
	return c
}

// setDefaultPlatform sets the default platform of the site.
func (a *app) setDefaultPlatform(ctx context.Context, cl *client.Client, name string) error {
	sites := client.Of[trivet.Site](cl)
	was := ""
	set := func(s *trivet.Site) error {
		was, s.Spec.Platform = s.Spec.Platform, name
		return nil
	}
	_, err := sites.Modify(ctx, trivet.SiteName, set)
	if errors.Is(err, trivet.ErrNotFound) {
		site := &trivet.Site{Meta: trivet.Meta{Kind: "Site", Name: trivet.SiteName}}
		_, err = sites.Create(ctx, site)
		if err == nil || errors.Is(err, trivet.ErrExists) {
			_, err = sites.Modify(ctx, trivet.SiteName, set)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "site/%s configured: the default platform is %s", trivet.SiteName, name)
	if was != "" && was != name {
		fmt.Fprintf(a.Out, "; it was %s", was)
	}
	fmt.Fprintln(a.Out)
	return nil
}

// warnOfOtherArch names machines that follow the default of the site, and cannot boot it.
func (a *app) warnOfOtherArch(ctx context.Context, cl *client.Client, p *trivet.Platform) error {
	other := "arm64"
	if p.Spec.Arch == other {
		other = "amd64"
	}
	var names []string
	for _, field := range []string{"status.inventory.arch", "spec.arch"} {
		all, _, err := client.Of[trivet.Machine](cl).List(ctx,
			client.ListOptions{Fields: "spec.platform=," + field + "=" + other})
		if err != nil {
			return err
		}
		for _, m := range all {
			if m.Arch() == other && !slices.Contains(names, m.Name) {
				names = append(names, m.Name)
			}
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(a.Err, "trivet: warning: platform %s is for %s; these machines without a platform of their own are "+
			"%s: %s\n  hint: trivet platform assign PLATFORM MACHINE...\n", p.Name, p.Spec.Arch, other, listed(names))
	}
	return nil
}
