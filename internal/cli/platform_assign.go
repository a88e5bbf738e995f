package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// assignment is what the machines of platform assign netboot from now on.
type assignment struct {
	platform *trivet.Platform
	own      bool // their records name it; else they follow the site's default, which it is
}

func (a *app) platformAssign() *cobra.Command {
	var toDefault, force bool
	var labels string
	c := &cobra.Command{
		Use:   "assign PLATFORM MACHINE... | assign --default MACHINE...",
		Short: "Let machines netboot a platform of their own, or the default of the site",
		Long: "Let machines netboot a platform of their own, or with --default that of the site. The machines are named,\n" +
			"or selected by labels. It counts from their next netboot on; what runs on them stays as it is.\n\n" +
			"Before that, all heads verify their copies of the platform. Where a head that responds has a damaged copy,\n" +
			"or none, nothing is changed. A machine of another architecture is refused.",
		Example: "  trivet platform assign debian-13 m1 m2\n" +
			"  trivet platform assign debian-13 -l canary=true\n" +
			"  trivet platform assign --default -l canary=true",
		ValidArgsFunction: a.completeAssign(&toDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if !toDefault {
				if len(args) == 0 {
					return fmt.Errorf("%w: name a platform, or add --default", trivet.ErrInvalid)
				}
				name, args = args[0], args[1:]
			}
			if len(args) == 0 == (labels == "") {
				return fmt.Errorf("%w: name machines, or select them by labels: -l canary=true", trivet.ErrInvalid)
			}
			return a.assignPlatform(cmd.Context(), name, args, labels, force)
		},
	}
	c.Flags().StringVarP(&labels, "selector", "l", "", "select machines by labels: rack=r1,env!=test")
	c.Flags().BoolVar(&toDefault, "default", false, "follow the default of the site")
	c.Flags().BoolVar(&force, "force", false, "assign it also where a head has no good copy of it")
	return c
}

// notAPlatform refuses the name of a platform in place of that of a machine.
func notAPlatform(ctx context.Context, cl *client.Client, name string) error {
	if _, err := client.Of[trivet.Machine](cl).Get(ctx, name); !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	if _, err := client.Of[trivet.Platform](cl).Get(ctx, name); err != nil {
		return nil // it is neither, which is reported as for any other name
	}
	return fmt.Errorf("%w: %s is a platform: name it, or --default, and not both", trivet.ErrInvalid, name)
}

// completeAssign completes a platform, if none is the default, and then machines.
func (a *app) completeAssign(toDefault *bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 && !*toDefault {
			return a.names(cmd.Context(), "platforms", nil)
		}
		return a.names(cmd.Context(), "machines", args)
	}
}

// assignPlatform lets machines netboot a platform; that of the site where it is not named.
func (a *app) assignPlatform(ctx context.Context, name string, machines []string, labels string, force bool) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	to := assignment{own: name != ""}
	if !to.own && len(machines) > 0 {
		if err := notAPlatform(ctx, cl, machines[0]); err != nil {
			return err
		}
	}
	if to.platform, err = platformOrDefault(ctx, cl, name); err != nil {
		return err
	}
	targets, missing, err := selectMachines(ctx, cl, machines, labels)
	if err != nil {
		return err
	}
	if err := a.verifyPlatform(ctx, cl, to.platform, force); err != nil {
		return err
	}
	for _, err := range missing {
		PrintError(a.Err, err)
	}
	failed := len(missing) > 0
	for _, m := range targets {
		if err := a.assignOne(ctx, cl, m, to); err != nil {
			if ctx.Err() != nil {
				return a.interrupted(ctx, err, "interrupted at machine/%s; run the command again", m.Name)
			}
			failed = true
			PrintError(a.Err, err)
		}
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// platformOrDefault returns a platform, or the default of the site where it is not named.
func platformOrDefault(ctx context.Context, cl *client.Client, name string) (*trivet.Platform, error) {
	if name == "" {
		site, err := client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName)
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return nil, err
		}
		if err != nil || site.Spec.Platform == "" {
			return nil, &trivet.Error{Op: "assign platform", Hint: "trivet platform set-default PLATFORM",
				Err: fmt.Errorf("%w: the site has no default platform", trivet.ErrNotFound)}
		}
		p, err := client.Of[trivet.Platform](cl).Get(ctx, site.Spec.Platform)
		if errors.Is(err, trivet.ErrNotFound) {
			err = &trivet.Error{Op: "read", Kind: "Platform", Name: site.Spec.Platform,
				Hint: "it is the default of the site: trivet platform set-default PLATFORM",
				Err:  trivet.ErrNotFound}
		}
		return p, err
	}
	return client.Of[trivet.Platform](cl).Get(ctx, name)
}

// selectMachines returns the machines that are named, with the errors of names that no machine has or can have, or those
// with labels.
func selectMachines(ctx context.Context, cl *client.Client, names []string, labels string) (
	all []*trivet.Machine, missing []error, err error) {
	info, err := trivet.LookupKind("Machine")
	if err != nil {
		return nil, nil, err
	}
	var once []string
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	list, missing, err := read(ctx, cl.Kind(info), once, client.ListOptions{Labels: labels})
	if err == nil && labels != "" && len(list) == 0 {
		err = fmt.Errorf("%w: no machine has the labels %s", trivet.ErrNotFound, labels)
	}
	for _, f := range list {
		all = append(all, f.record.(*trivet.Machine))
	}
	return all, missing, err
}

// assignOne writes the assignment into the record of a machine.
func (a *app) assignOne(ctx context.Context, cl *client.Client, m *trivet.Machine, to assignment) error {
	want := ""
	if to.own {
		want = to.platform.Name
	}
	if arch := m.Arch(); arch != "" && arch != to.platform.Spec.Arch {
		return &trivet.Error{Op: "assign platform", Kind: "Machine", Name: m.Name,
			Err: fmt.Errorf("%w: the machine is %s, and platform %s is for %s", trivet.ErrConflict, arch,
				to.platform.Name, to.platform.Spec.Arch)}
	}
	text := "netboots platform " + to.platform.Name
	if !to.own {
		text += ", the default of the site,"
	}
	if m.Spec.Platform == want {
		fmt.Fprintf(a.Out, "machine/%s unchanged: it %s\n", m.Name, strings.TrimSuffix(text, ","))
		return nil
	}
	var value any // null removes the field
	if to.own {
		value = want
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"platform": value}})
	if err != nil {
		return err
	}
	if _, err := client.Of[trivet.Machine](cl).Patch(ctx, m.Name, patch, 0); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "machine/%s %s from its next netboot on\n", m.Name, text)
	return nil
}

// verifyPlatform lets all heads verify their copies of a platform. It fails where a head that responds has no good one,
// unless that is forced.
func (a *app) verifyPlatform(ctx context.Context, cl *client.Client, p *trivet.Platform, force bool) error {
	initrd, _ := p.Initrd()
	digests := slices.Compact([]string{p.Spec.Kernel.Digest, initrd.Digest})
	copies, err := a.collectCopies(func(result func(trivet.BlobCopy)) error {
		return cl.CheckBlobs(ctx, trivet.BlobCheck{Digests: digests}, result)
	})
	switch {
	case err == nil || ctx.Err() != nil:
	case force:
		fmt.Fprintf(a.Err, "trivet: warning: the copies of platform %s were not verified: %v\n", p.Name, err)
		err = nil
	case errors.Is(err, trivet.ErrNotFound):
		err = &trivet.Error{Op: "verify", Kind: "Platform", Name: p.Name, Err: err,
			Hint: "import it again: trivet platform import DIR --name " + p.Name}
	}
	if err != nil {
		return err
	}
	for _, c := range copies {
		noAnswer := c.State == trivet.CopyUnknown && c.Digest == "" // a head that does not respond
		switch {
		case !c.Bad():
		case noAnswer || force:
			fmt.Fprintf(a.Err, "trivet: warning: the copy of platform %s on %s is %s: %s\n", p.Name, printable(c.Head),
				printable(string(c.State)), printable(c.Problem))
		default:
			return &trivet.Error{Op: "verify", Kind: "Platform", Name: p.Name,
				Hint: "trivet blob repair, or assign it nevertheless: --force",
				Err: fmt.Errorf("%w: the copy on %s is %s: %s", trivet.ErrConflict, printable(c.Head),
					printable(string(c.State)), printable(c.Problem))}
		}
	}
	return nil
}
