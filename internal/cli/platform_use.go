package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// platformUse is what netboots a platform.
type platformUse struct {
	Platform string `json:"platform"`
	Arch     string `json:"arch,omitempty"`
	Version  string `json:"version,omitempty"`
	// Agent is the version of its agent; empty: unknown.
	Agent string `json:"agent,omitempty"`
	// Problem is why it does not have the program of the last upgrade of the heads.
	Problem string `json:"problem,omitempty"`
	// Missing: records name it, and it does not exist.
	Missing bool `json:"missing,omitempty"`
	// Default: machines without a platform of their own netboot it.
	Default bool `json:"default"`
	// Machines are those whose records name it.
	Machines []string `json:"machines"`
	// FailedWith are the machines whose agents did not start with it since one succeeded: at most the first two.
	FailedWith []string `json:"failedWith,omitempty"`
}

func (u *platformUse) isUsed() bool { return u.Default || len(u.Machines) > 0 }

func (a *app) platformUsage() *cobra.Command {
	c := &cobra.Command{
		Use:   "usage [PLATFORM...]",
		Short: "Show which machines netboot which platform",
		Long: "Show which machines netboot which platform: those whose records name it, and for the default of the site\n" +
			"all others. Platforms that records name and that do not exist are among them. AGENT is the version of the\n" +
			"program of Trivet in the platform, where that is known. -o json has the names of the machines.",
		Example: "  trivet platform usage\n  trivet platform usage debian-12 -o json\n" +
			"  trivet get machines --field spec.platform=debian-12",
		ValidArgsFunction: a.completeNames("platforms"),
		RunE: func(cmd *cobra.Command, names []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			uses, err := platformUses(cmd.Context(), cl)
			if err != nil {
				return err
			}
			for _, name := range names {
				if !slices.ContainsFunc(uses, func(u platformUse) bool { return u.Platform == name }) {
					return &trivet.Error{Op: "read", Kind: "Platform", Name: name, Err: trivet.ErrNotFound}
				}
			}
			uses = slices.DeleteFunc(uses, func(u platformUse) bool {
				return len(names) > 0 && !slices.Contains(names, u.Platform)
			})
			return a.showUses(uses)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// platformUses returns the use of all platforms, by their names. It reads the machines that have a platform of their
// own only.
func platformUses(ctx context.Context, cl *client.Client) ([]platformUse, error) {
	platforms, _, err := client.Of[trivet.Platform](cl).List(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	machines, _, err := client.Of[trivet.Machine](cl).List(ctx, client.ListOptions{Fields: "spec.platform!="})
	if err != nil {
		return nil, err
	}
	site, err := client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName)
	if errors.Is(err, trivet.ErrNotFound) {
		site, err = &trivet.Site{}, nil
	}
	if err != nil {
		return nil, err
	}
	return usesOf(platforms, machines, site.Spec.Platform), nil
}

// usesOf returns the use of platforms. name is the default of the site.
func usesOf(platforms []*trivet.Platform, machines []*trivet.Machine, name string) []platformUse {
	all := map[string]*platformUse{}
	for _, p := range platforms {
		u := &platformUse{Platform: p.Name, Arch: p.Spec.Arch, Version: p.Spec.Version, Machines: []string{},
			Problem: p.UpgradeProblem()}
		if _, agent := p.Initrd(); agent != nil {
			u.Agent = orDefault(agent.Version, "unknown")
		}
		if f := p.Status.Failures; f != nil && f.Generation == p.Generation {
			u.FailedWith = f.Machines
		}
		all[p.Name] = u
	}
	of := func(name string) *platformUse {
		if all[name] == nil {
			all[name] = &platformUse{Platform: name, Missing: true, Machines: []string{}}
		}
		return all[name]
	}
	for _, m := range machines {
		u := of(m.Spec.Platform)
		u.Machines = append(u.Machines, m.Name)
	}
	if name != "" {
		of(name).Default = true
	}
	sorted := make([]platformUse, 0, len(all))
	for _, u := range all {
		sorted = append(sorted, *u)
	}
	slices.SortFunc(sorted, func(x, y platformUse) int { return cmp.Compare(x.Platform, y.Platform) })
	return sorted
}

func (a *app) showUses(uses []platformUse) error {
	if a.output != "table" {
		return a.showValue(uses)
	}
	if len(uses) == 0 {
		fmt.Fprintln(a.Err, "no platforms")
		return nil
	}
	rows := [][]string{{"PLATFORM", "ARCH", "VERSION", "AGENT", "MACHINES", "FAILED"}}
	for _, u := range uses {
		name, machines, failed := printable(u.Platform), fmt.Sprint(len(u.Machines)), ""
		if u.Missing {
			name += " (missing)"
		}
		if u.Default {
			machines += ", and all without a platform of their own"
		}
		if len(u.FailedWith) > 0 {
			failed = fmt.Sprint(len(u.FailedWith))
		}
		rows = append(rows, []string{name, orDefault(u.Arch, "-"), printable(orDefault(u.Version, "-")),
			printable(orDefault(u.Agent, "-")), machines, orDefault(failed, "-")})
	}
	if err := align(a.Out, rows); err != nil {
		return err
	}
	for _, u := range uses {
		if u.Problem != "" {
			fmt.Fprintf(a.Out, "platform %s does not follow the heads: %s\n", printable(u.Platform), printable(u.Problem))
		}
	}
	return nil
}

func (a *app) platformRemove() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "remove PLATFORM...",
		Short: "Delete platforms that no machine netboots",
		Long: "Delete platforms. One that is the default of the site, or that records of machines name, is not deleted.\n" +
			"What the heads store of a platform is deleted some time after its record.",
		Example: "  trivet platform usage\n  trivet platform remove debian-12",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: a.completeNames("platforms"),
		RunE: func(cmd *cobra.Command, names []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.removePlatforms(cmd.Context(), cl, names, force)
		},
	}
	c.Flags().BoolVar(&force, "force", false,
		"delete it also in use: machines that netboot it fail then; set another default first")
	return c
}

// removePlatforms deletes platforms, also after one that cannot be deleted. The head decides: what is read before only
// says who uses them.
func (a *app) removePlatforms(ctx context.Context, cl *client.Client, names []string, force bool) error {
	info, err := trivet.LookupKind("Platform")
	if err != nil {
		return err
	}
	failed := false
	for _, name := range names {
		result, err := cl.Kind(info).Force(force).Remove(ctx, name)
		if err == nil {
			fmt.Fprintf(a.Out, "platform/%s removed\n", name)
			a.printOrphans(result)
			continue
		}
		if errors.Is(err, trivet.ErrConflict) {
			err = inUse(ctx, cl, name, err)
		}
		failed = true
		PrintError(a.Err, err)
	}
	if failed {
		return ExitError(1)
	}
	return nil
}

// inUse returns the error of a platform that was not deleted with all that uses it.
func inUse(ctx context.Context, cl *client.Client, name string, refused error) error {
	uses, err := platformUses(ctx, cl)
	i := slices.IndexFunc(uses, func(u platformUse) bool { return u.Platform == name })
	if err != nil || i < 0 || !uses[i].isUsed() {
		return refused
	}
	var by, hints []string
	if uses[i].Default {
		by = append(by, "it is the default of the site")
		hints = append(hints, "trivet platform set-default OTHER")
	}
	if n := len(uses[i].Machines); n > 0 {
		by = append(by, fmt.Sprintf("it is named by the records of %s: %s", counted(n, "machine"), listed(uses[i].Machines)))
		hints = append(hints, "trivet platform assign OTHER MACHINE...")
	}
	return &trivet.Error{Op: "remove", Kind: "Platform", Name: name,
		Err:  fmt.Errorf("%w: %s", trivet.ErrConflict, strings.Join(by, ", and ")),
		Hint: strings.Join(hints, "; ") + "; or --force"}
}
