package cli

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/program"
)

// upgradeRun is what trivet upgrade run was called with.
type upgradeRun struct {
	files             []string
	soak              time.Duration
	plan, yes, noWait bool
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
			"A package that is installed afterwards replaces it. Installers that netboot have the agent of their\n" +
			"platform, which works with heads of the next release: build platforms again afterwards\n" +
			"(trivet platform build).\n\n" +
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
		"how long the first full head must be well before the next one starts again")
	c.Flags().BoolVar(&r.plan, "plan", false, "show what would be done, and do nothing")
	c.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&r.noWait, "no-wait", false, "request the upgrade and exit")
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
	if r.plan || !r.yes {
		text, err := upgradePlan(ctx, cl, files, version, r.soak)
		if err != nil {
			return err
		}
		if r.plan {
			fmt.Fprint(a.Out, text)
			return nil
		}
		if err := a.confirm("upgrade", text); err != nil {
			return err
		}
	}
	spec := trivet.UpgradeSpec{Version: version.Version, Release: version.Release, Soak: trivet.Duration(r.soak)}
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

// programFiles returns the programs in files, and their version: that of one which this computer can run.
func programFiles(ctx context.Context, paths []string) (files []programFile, v program.Version, err error) {
	for _, path := range paths {
		arch, err := archOf(path)
		if err != nil {
			return nil, v, err
		}
		if slices.ContainsFunc(files, func(f programFile) bool { return f.arch == arch }) {
			return nil, v, &trivet.Error{Op: "upgrade", Name: path,
				Err: fmt.Errorf("%w: there is another file for %s", trivet.ErrInvalid, arch)}
		}
		files = append(files, programFile{path, arch})
	}
	i := slices.IndexFunc(files, func(f programFile) bool { return f.arch == runtime.GOARCH && runtime.GOOS == "linux" })
	if i < 0 {
		return nil, v, &trivet.Error{Op: "upgrade", Hint: "run the command on a computer with Linux for " + files[0].arch +
			", such as a head", Err: fmt.Errorf("%w: no file has a program that this computer can run for its version",
			trivet.ErrInvalid)}
	}
	path, err := filepath.Abs(files[i].path)
	if err == nil {
		v, err = program.VersionOf(ctx, path)
	}
	if err != nil {
		return nil, v, &trivet.Error{Op: "upgrade", Name: files[i].path, Err: err,
			Hint: "pass a program of release 0.3.1 or later, as bin/trivet or /usr/bin/trivet of its package"}
	}
	return files, v, nil
}

// archOf returns the architecture of a program in a file.
func archOf(path string) (string, error) {
	f, err := elf.Open(path)
	var malformed *elf.FormatError
	if errors.As(err, &malformed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it is no program for Linux", trivet.ErrInvalid)
	}
	if err != nil {
		return "", &trivet.Error{Op: "upgrade", Name: path, Err: err,
			Hint: "pass the file of the program, not that of a package"}
	}
	defer f.Close()
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return "", &trivet.Error{Op: "upgrade", Name: path, Err: fmt.Errorf("%w: it is a program for %s; heads are %s",
		trivet.ErrInvalid, f.Machine, strings.Join(trivet.ArchitecturesOfHeads(), " or "))}
}

// upgradePlan says what an upgrade does.
func upgradePlan(ctx context.Context, cl *client.Client, files []programFile, v program.Version, soak time.Duration) (
	string, error) {
	cluster, err := cl.Cluster(ctx)
	if err != nil {
		return "", err
	}
	site, err := client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return "", err
	}
	var reached trivet.Release
	if err == nil {
		reached = site.Status.ClusterVersion
	}
	var b strings.Builder
	fmt.Fprintf(&b, "heads: the program is replaced by version %s of release %s, for", printable(v.Version),
		printable(string(v.Release)))
	for _, f := range files {
		fmt.Fprintf(&b, " %s", f.arch)
	}
	fmt.Fprint(&b, "\n  all heads get it first, and run it for its version; then each starts again by itself:\n")
	heads := slices.Clone(cluster.Heads)
	slices.SortStableFunc(heads, func(x, y trivet.HeadView) int { return upgradeRank(x) - upgradeRank(y) })
	first := true
	for i, h := range heads {
		fmt.Fprintf(&b, "  %d. %s (%s), now %s", i+1, printable(h.Name), upgradeRole(h), printable(h.Version))
		if first && upgradeRank(h) > 0 && len(heads)-i > 1 {
			first = false
			fmt.Fprintf(&b, "; it must be well for %s before the next one", graceText(trivet.Duration(soak)))
		}
		fmt.Fprintln(&b)
	}
	for _, h := range heads {
		if h.State == "down" || h.State == "joining" || h.State == "removing" {
			fmt.Fprintf(&b, "It waits for %s, which is %s\n", printable(h.Name), h.State)
		}
	}
	switch {
	case v.Release.Compare(reached) > 0:
		fmt.Fprintf(&b, "At the end the cluster's version is raised from %s to %s: what that adds is used from then on, and "+
			"the heads cannot go back\n", orDefault(string(reached), "none"), v.Release)
	case v.Release.Compare(reached) == 0:
		fmt.Fprintf(&b, "The cluster's version stays %s: trivet upgrade rollback works afterwards, too\n", reached)
	default:
		return "", &trivet.Error{Op: "upgrade", Err: fmt.Errorf("%w: %s is of release %s, and the cluster uses what release "+
			"%s added", trivet.ErrInvalid, v.Version, v.Release, reached),
			Hint: "upgrade to that release, or a later one"}
	}
	return b.String(), nil
}

// upgradeRank orders heads as an upgrade does.
func upgradeRank(h trivet.HeadView) int {
	switch {
	case h.Role == trivet.RoleWitness:
		return 0
	case h.State == "leader":
		return 2
	}
	return 1
}

func upgradeRole(h trivet.HeadView) string {
	switch {
	case h.Role == trivet.RoleWitness:
		return "witness"
	case h.State == "leader":
		return "leader of the store"
	}
	return "full head"
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
				if err := a.confirm("roll back", text); err != nil {
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

// waitUpgrade waits until an upgrade has ended, and prints its progress. It fails where the heads went back although
// that was not requested.
func (a *app) waitUpgrade(ctx context.Context, cl *client.Client, u *trivet.Upgrade) error {
	last := ""
	for e, err := range client.Of[trivet.Upgrade](cl).Watch(ctx, client.WatchOptions{Names: []string{u.Name}}) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		now, ok := e.Record.(*trivet.Upgrade)
		if !ok || e.Type != client.Put || now.Spec.Run < u.Spec.Run || now.Generation < u.Generation {
			continue
		}
		if text := upgradeText(now); text != last {
			last = text
			fmt.Fprintln(a.Err, text)
		}
		if now.InProgress() {
			continue
		}
		if err := a.showUpgrade(ctx, cl, now); err != nil {
			return err
		}
		if now.Status.Phase == trivet.UpgradeReverted && !now.Spec.Rollback {
			return &trivet.Error{Op: "upgrade", Err: fmt.Errorf("%w: %s", trivet.ErrConflict, now.Status.Cause),
				Hint: "the heads run their former program; look into the log of the head that is named"}
		}
		return nil
	}
	fmt.Fprintln(a.Err, "the heads continue; to check it: trivet upgrade status")
	return ExitError(130)
}

// upgradeText is the state of an upgrade in one line.
func upgradeText(u *trivet.Upgrade) string {
	st := &u.Status
	if st.Run != u.Spec.Run {
		return strings.TrimSuffix(printable(u.Spec.Version)+": requested; "+printable(st.Reason), "; ")
	}
	text := fmt.Sprintf("%s: %s", printable(u.Spec.Version), st.Phase)
	if u.Spec.Rollback && st.Phase != trivet.UpgradeReverting && st.Phase != trivet.UpgradeReverted {
		text += ", and is to be rolled back"
	}
	for _, part := range []string{st.Cause, st.Reason} {
		if part != "" {
			text += "; " + printable(part)
		}
	}
	if st.Head != "" && st.Reason == "" {
		text += "; " + printable(st.Head) + " starts again"
	}
	return text
}

// upgradeView is an upgrade with the programs of the heads.
type upgradeView struct {
	*trivet.Upgrade
	Heads []upgradeHead `json:"heads"`
}

type upgradeHead struct {
	Name    string              `json:"name"`
	Version string              `json:"version"`
	Program *trivet.HeadProgram `json:"program,omitempty"`
}

func (a *app) showUpgrade(ctx context.Context, cl *client.Client, u *trivet.Upgrade) error {
	heads, _, err := client.Of[trivet.Head](cl).List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	view := upgradeView{Upgrade: u}
	for _, h := range heads {
		if h.Status.State != trivet.HeadRemoved {
			view.Heads = append(view.Heads, upgradeHead{h.Name, h.Status.Version, h.Status.Program})
		}
	}
	slices.SortFunc(view.Heads, func(x, y upgradeHead) int { return byNumber(x.Name, y.Name) })
	if a.output != "table" {
		return a.showValue(view)
	}
	fmt.Fprintln(a.Out, upgradeText(u))
	rows := [][]string{{"HEAD", "VERSION", "PROGRAM"}}
	for _, h := range view.Heads {
		rows = append(rows, []string{printable(h.Name), printable(h.Version), printable(programText(u, h.Program))})
	}
	return align(a.Out, rows)
}

// programText says how far a head is.
func programText(u *trivet.Upgrade, p *trivet.HeadProgram) string {
	if p == nil || p.Run != u.Spec.Run {
		return ""
	}
	blob, ok := u.Spec.ProgramFor(p.Arch)
	switch {
	case p.Manual:
		return "is replaced on its host (--no-upgrades)"
	case p.Failed:
		return "former: " + p.Problem
	case ok && p.Running == blob.Digest:
		return "new"
	case p.Staged:
		return "former; it has the new one"
	}
	return strings.TrimSuffix("former: "+p.Problem, ": ")
}
