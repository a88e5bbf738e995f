package platforms

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// step is what is done next for a platform.
type step string

const (
	none    step = ""
	waiting step = "wait"   // for another platform
	settle  step = "settle" // it has the program, or does not get it
	follow  step = "follow" // it gets the program
	back    step = "back"   // machines netboot the former initramfs again
)

// decide returns the next step of a platform, and its reason. others are the other platforms, usual is the name of the
// site's default: they decide when a platform gets the program.
func decide(p *trivet.Platform, u *trivet.Upgrade, others []*trivet.Platform, usual string, now time.Time) (step,
	string) {
	next, reason := alone(p, u)
	if next != follow {
		return next, reason
	}
	for _, o := range others {
		if o.Spec.Arch == p.Spec.Arch && wentBack(o, u) {
			return settle, fmt.Sprintf("platform %s went back: %s", o.Name, o.UpgradeProblem())
		}
		if reason := waitsFor(p, o, u, usual, now); reason != "" {
			return waiting, reason
		}
	}
	return follow, ""
}

// alone returns the next step of a platform without regard to others, and its reason.
func alone(p *trivet.Platform, u *trivet.Upgrade) (step, string) {
	if f := p.Followed(); f != nil && f.Former != nil {
		if why := goesBack(p, f, u); why != "" {
			return back, why
		}
	}
	if !u.PlatformsFollow() || isSettled(p, u) {
		return none, ""
	}
	_, agent := p.Initrd()
	program, ok := u.Spec.ProgramFor(p.Spec.Arch)
	switch {
	case agent == nil:
		return settle, "it does not say where its agent is, as it was built before 0.3.1, or by other means: build and " +
			"import it again"
	case !ok:
		return settle, fmt.Sprintf("the upgrade to %s has no program for %s: pass that file to trivet upgrade run as well",
			u.Spec.Version, p.Spec.Arch)
	case agent.Program == program.Digest:
		return settle, ""
	case agent.Release.Compare(u.Spec.Release) > 0:
		return settle, fmt.Sprintf("its agent is of release %s, which is later than %s", agent.Release, u.Spec.Release)
	}
	return follow, ""
}

// goesBack returns why machines are to netboot the former initramfs again. What happens after the new one has worked
// once is not due to it.
func goesBack(p *trivet.Platform, f *trivet.PlatformUpgrade, u *trivet.Upgrade) string {
	switch {
	case p.Spec.Back == f.Run:
		return "requested by an operator"
	case u.Spec.Run == f.Run && u.Status.Run == f.Run && u.Status.Phase == trivet.UpgradeReverted:
		return "the heads went back to their former program"
	case f.Proven.IsZero():
		return workflow.AtFault("platform "+p.Name, p.Status.Failures, p.Generation)
	}
	return ""
}

// isSettled reports whether nothing is left to be done for a platform in an upgrade.
func isSettled(p *trivet.Platform, u *trivet.Upgrade) bool {
	return p.Status.Upgrade != nil && p.Status.Upgrade.Run == u.Spec.Run
}

// wentBack reports whether machines went back to the former initramfs of a platform in this upgrade.
func wentBack(p *trivet.Platform, u *trivet.Upgrade) bool {
	f := p.Followed()
	return f != nil && f.Run == u.Spec.Run && f.Former == nil && f.Problem != ""
}

// waitsFor returns why a platform does not get the program before another one; empty: that is no reason. The default of
// the site is last, as most machines netboot it. Where an agent has started with the new program, or after the time
// that the heads took for the first one of them, the next platform gets it.
func waitsFor(p, other *trivet.Platform, u *trivet.Upgrade, usual string, now time.Time) string {
	switch {
	case isSettled(other, u):
		if f := other.Followed(); f != nil && f.Former != nil && f.Proven.IsZero() && other.Spec.Arch == p.Spec.Arch &&
			now.Sub(f.Changed).Abs() < u.Spec.SoakOrDefault().D() {
			return fmt.Sprintf("waits until an agent has started with platform %s, or for %s", other.Name, u.Spec.SoakOrDefault().D())
		}
	case other.Status.Upgrade != nil && other.Status.Upgrade.Tried == u.Spec.Run: // it is tried again, and holds up no other one
	case before(other.Name, p.Name, usual):
		return "waits for platform " + other.Name
	}
	return ""
}

// before reports whether a platform gets the program before another one.
func before(a, b, usual string) bool {
	if (a == usual) != (b == usual) {
		return b == usual
	}
	return strings.Compare(a, b) < 0
}

// allSettled reports whether nothing is left to be done in an upgrade.
func allSettled(all []*trivet.Platform, u *trivet.Upgrade) bool {
	return !slices.ContainsFunc(all, func(p *trivet.Platform) bool { return !isSettled(p, u) })
}
