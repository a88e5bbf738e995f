package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

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
	Heads     []upgradeHead     `json:"heads"`
	Platforms []upgradePlatform `json:"platforms,omitempty"`
}

type upgradeHead struct {
	Name    string              `json:"name"`
	Version string              `json:"version"`
	Program *trivet.HeadProgram `json:"program,omitempty"`
}

type upgradePlatform struct {
	Name  string `json:"name"`
	Agent string `json:"agent"` // its version
	State string `json:"state"`
}

// upgradePlatforms returns the platforms, and how far they are.
func upgradePlatforms(ctx context.Context, cl *client.Client, u *trivet.Upgrade) (all []upgradePlatform, err error) {
	platforms, _, err := client.Of[trivet.Platform](cl).List(ctx, client.ListOptions{})
	for _, p := range platforms {
		_, agent := p.Initrd()
		v := upgradePlatform{Name: p.Name, State: platformText(u, p)}
		if agent != nil {
			v.Agent = orDefault(agent.Version, "unknown")
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(x, y upgradePlatform) int { return strings.Compare(x.Name, y.Name) })
	return all, err
}

// platformText says how far a platform is.
func platformText(u *trivet.Upgrade, p *trivet.Platform) string {
	st := p.Status.Upgrade
	settled := st != nil && st.Run == u.Spec.Run
	switch {
	case p.UpgradeProblem() != "":
		return "former: " + p.UpgradeProblem()
	case settled && p.Followed() != nil && st.Former != nil && st.Proven.IsZero():
		return "new; it has not started on a machine yet"
	case settled && p.Followed() != nil:
		return "new"
	case u.Spec.KeepPlatforms:
		return "is kept (--keep-platforms)"
	case settled || !u.InProgress() && !u.PlatformsFollow():
		return "as it was imported"
	}
	return "former; it follows the heads"
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
	if view.Platforms, err = upgradePlatforms(ctx, cl, u); err != nil {
		return err
	}
	if a.output != "table" {
		return a.showValue(view)
	}
	fmt.Fprintln(a.Out, upgradeText(u))
	rows := [][]string{{"HEAD", "VERSION", "PROGRAM"}}
	for _, h := range view.Heads {
		rows = append(rows, []string{printable(h.Name), printable(h.Version), printable(programText(u, h.Program))})
	}
	if err := align(a.Out, rows); err != nil || len(view.Platforms) == 0 {
		return err
	}
	rows = [][]string{{"PLATFORM", "AGENT", "STATE"}}
	for _, p := range view.Platforms {
		rows = append(rows, []string{printable(p.Name), printable(orDefault(p.Agent, "-")), printable(p.State)})
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
