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

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/program"
)

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
func upgradePlan(ctx context.Context, cl *client.Client, files []programFile, v program.Version, r *upgradeRun) (
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
			fmt.Fprintf(&b, "; it must be well for %s before the next one", graceText(trivet.Duration(r.soak)))
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
	if err := planPlatforms(ctx, cl, &b, files, v, r.keepPlatforms); err != nil {
		return "", err
	}
	return b.String(), nil
}

// planPlatforms says what becomes of platforms.
func planPlatforms(ctx context.Context, cl *client.Client, b *strings.Builder, files []programFile, v program.Version,
	keep bool) error {
	platforms, _, err := client.Of[trivet.Platform](cl).List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	slices.SortFunc(platforms, func(x, y *trivet.Platform) int { return strings.Compare(x.Name, y.Name) })
	for _, p := range platforms {
		_, agent := p.Initrd()
		text := "its agent becomes that version then"
		switch {
		case keep:
			text = "keeps its agent (--keep-platforms)"
		case agent == nil:
			text = "keeps its agent, as it does not say where that is: build and import it again (trivet platform build)"
		case !slices.ContainsFunc(files, func(f programFile) bool { return f.arch == p.Spec.Arch }):
			text = "keeps its agent: pass the file of the program for " + printable(p.Spec.Arch) + " as well"
		case agent.Release.Compare(v.Release) > 0:
			text = "keeps its agent, which is of release " + printable(string(agent.Release))
		}
		fmt.Fprintf(b, "Platform %s: %s\n", printable(p.Name), text)
	}
	return nil
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
