package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// upgradeRun is what trivet upgrade run was called with.
type upgradeRun struct {
	files             []string
	soak              time.Duration
	plan, yes, noWait bool
	keepPlatforms     bool
}

func (a *app) upgrade() *cobra.Command {
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the program of all heads by another version",
		Long: "Replace the program of all heads by another version, one head after the other, without a pause of the\n" +
			"service, and go back automatically where it does not work.",
		Example: "  trivet upgrade run ./trivet --plan\n  trivet upgrade run ./trivet\n  trivet upgrade status\n" +
			"  trivet upgrade pause\n  trivet upgrade rollback",
	}
	c.AddCommand(a.upgradeRun(), a.upgradeStatus(),
		a.upgradeVerb("pause", "Let no further head start again with the new program", "  trivet upgrade pause",
			func(ctx context.Context, cl *client.Client) (*trivet.Upgrade, error) {
				return cl.PauseUpgrade(ctx, true)
			}),
		a.upgradeVerb("resume", "Let a paused upgrade go on", "  trivet upgrade resume",
			func(ctx context.Context, cl *client.Client) (*trivet.Upgrade, error) {
				return cl.PauseUpgrade(ctx, false)
			}),
		a.upgradeRollback())
	return c
}

func (a *app) upgradeRun() *cobra.Command {
	var r upgradeRun
	c := &cobra.Command{
		Use:   "run FILE...",
		Short: "Replace the program of all heads by that of a file",
		Long: "Upload the program of a file, and let all heads replace their program by it. Where heads have different\n" +
			"architectures, name a file for each.\n\n" +
			"All heads get the program first, and run it for its version. Then one head at a time starts again with\n" +
			"it, by itself: witnesses, then the full heads, the leader of the store last. The next one does so only\n" +
			"while all heads respond and know a leader, and nothing of trivet status is broken that held before; the\n" +
			"first full head must have been well for the time of --soak. The cluster's version, which lets heads use\n" +
			"what a release adds, is raised at the end.\n\n" +
			"A head that the new program does not work on goes back to the former one by itself, and so do then all.\n" +
			"They also do where something that may be due to it is not well for 10 minutes.\n\n" +
			"The program is in the data directories of the heads; what the package has installed stays, and starts it.\n" +
			"A package that is installed afterwards replaces it.\n\n" +
			"At the end the platforms that machines netboot get it as their agent, one after the other, the default\n" +
			"of the site last. Where it does not start on machines, they go back by themselves; --keep-platforms\n" +
			"leaves them as they are. Agents that run go on.\n\n" +
			"The command waits until the upgrade is complete. If it is interrupted, the heads continue; run it again\n" +
			"to wait again.",
		Example: "  trivet upgrade run ./trivet --plan\n  trivet upgrade run ./trivet --soak 10m\n" +
			"  trivet upgrade run ./trivet-amd64 ./trivet-arm64 --yes --no-wait",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.soak < time.Second || r.soak > trivet.MaxSoak.D() {
				return &trivet.FieldError{Field: "--soak", Problem: fmt.Sprintf("is %s; must be from 1s to %s", r.soak,
					graceText(trivet.MaxSoak))}
			}
			r.files = args
			return a.runUpgrade(cmd.Context(), &r)
		},
	}
	c.Flags().DurationVar(&r.soak, "soak", trivet.DefaultSoak.D(),
		"how long the first full head must be well before the next one starts again; in the same way of platforms")
	c.Flags().BoolVar(&r.plan, "plan", false, "show what would be done, and do nothing")
	c.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&r.noWait, "no-wait", false, "request the upgrade and exit")
	c.Flags().BoolVar(&r.keepPlatforms, "keep-platforms", false, "leave the agents of platforms as they are")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// programFile is a file with a program.
type programFile struct{ path, arch string }

func (a *app) runUpgrade(ctx context.Context, r *upgradeRun) error {
	files, version, err := programFiles(ctx, r.files)
	if err != nil {
		return err
	}
	cl, err := a.connect()
	if err != nil {
		return err
	}
	planned, err := a.planOrConfirm(ctx, "upgrade", r.plan, r.yes, func() (string, error) {
		return upgradePlan(ctx, cl, files, version, r)
	})
	if planned || err != nil {
		return err
	}
	spec := trivet.UpgradeSpec{Version: version.Version, Release: version.Release, Soak: trivet.Duration(r.soak),
		KeepPlatforms: r.keepPlatforms}
	for _, f := range files {
		ref, err := a.putFile(ctx, cl, f.path)
		if err != nil {
			return a.interrupted(ctx, err, "interrupted; to upgrade, run the command again")
		}
		spec.Programs = append(spec.Programs, trivet.Program{Arch: f.arch, Blob: ref})
	}
	u, err := cl.Upgrade(ctx, spec)
	if err != nil {
		return err
	}
	if r.noWait {
		return a.showUpgrade(ctx, cl, u)
	}
	return a.waitUpgrade(ctx, cl, u)
}

func (a *app) upgradeStatus() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the upgrade, and the program of each head",
		Example: "  trivet upgrade status\n  trivet upgrade status -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			u, err := client.Of[trivet.Upgrade](cl).Get(cmd.Context(), trivet.UpgradeName)
			if errors.Is(err, trivet.ErrNotFound) && a.output == "table" {
				fmt.Fprintln(a.Out, "there was no upgrade; to begin one: trivet upgrade run FILE")
				return nil
			}
			if err != nil {
				return err
			}
			return a.showUpgrade(cmd.Context(), cl, u)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// upgradeVerb is a command that changes the upgrade in progress.
func (a *app) upgradeVerb(name, short, example string,
	do func(context.Context, *client.Client) (*trivet.Upgrade, error)) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			u, err := do(cmd.Context(), cl)
			if err != nil {
				return err
			}
			return a.showUpgrade(cmd.Context(), cl, u)
		},
	}
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) upgradeRollback() *cobra.Command {
	var yes, noWait bool
	c := &cobra.Command{
		Use:   "rollback",
		Short: "Let the heads go back to their former program",
		Long: "Let all heads that run the new program go back to the one before, one after the other. That is possible\n" +
			"while an upgrade is in progress, and after it as long as it did not raise the cluster's version.",
		Example: "  trivet upgrade rollback\n  trivet upgrade rollback --yes --no-wait", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			if !yes {
				text := "the heads that run the new program go back to their former one, one after the other\n"
				if err := a.confirm(cmd.Context(), "roll back", text); err != nil {
					return err
				}
			}
			u, err := cl.RollbackUpgrade(cmd.Context())
			if err != nil {
				return err
			}
			if noWait {
				return a.showUpgrade(cmd.Context(), cl, u)
			}
			return a.waitUpgrade(cmd.Context(), cl, u)
		},
	}
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&noWait, "no-wait", false, "request the rollback and exit")
	a.outputForms(c, "table", "json", "yaml")
	return c
}
