package upgrade

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// step is what the upgrade does next.
type step string

const (
	none    step = ""
	waiting step = "wait"
	begin   step = "begin"  // a new request: its status is set
	start   step = "start"  // all heads have the program: the first one is about to start again
	grant   step = "grant"  // one head is to start again
	taken   step = "taken"  // that head has done so
	finish  step = "finish" // all heads run the new program
	revert  step = "revert" // the heads go back
	ended   step = "ended"  // the heads run their former program
)

// decide returns the next step, and its reason: what the upgrade waits for, or why the heads go back. heads are the
// members that are not being removed.
func decide(u *trivet.Upgrade, heads []*trivet.Head) (next step, reason string) {
	switch {
	case !u.InProgress():
		return none, ""
	case u.Spec.Run != u.Status.Run:
		return begin, ""
	}
	problem := failures(u, heads)
	if u.Spec.Rollback {
		problem = "requested by an operator"
	}
	switch u.Status.Phase {
	case trivet.UpgradeStaging:
		return stage(u, heads, problem)
	case trivet.UpgradeSwitching:
		return change(u, heads, problem)
	case trivet.UpgradeDone:
		return revert, problem
	}
	return goBack(u, heads)
}

// stage waits until all heads have the new program.
func stage(u *trivet.Upgrade, heads []*trivet.Head, problem string) (step, string) {
	if problem != "" {
		return ended, problem
	}
	var missing []string
	for _, h := range heads {
		switch p := h.Status.Program; {
		case p == nil || p.Run != u.Spec.Run:
			missing = append(missing, h.Name+" to report its program")
		case p.Manual || p.Staged:
		case p.Problem != "":
			missing = append(missing, fmt.Sprintf("%s to have the program: %s", h.Name, p.Problem))
		default:
			missing = append(missing, h.Name+" to have the program")
		}
	}
	switch {
	case len(missing) > 0:
		return waiting, "waits for " + strings.Join(missing, ", and ")
	case u.Spec.Paused:
		return waiting, "it is paused"
	}
	return start, ""
}

// change lets one head after the other start with the new program.
func change(u *trivet.Upgrade, heads []*trivet.Head, problem string) (step, string) {
	if problem != "" {
		return revert, problem
	}
	left := slices.DeleteFunc(slices.Clone(heads), func(h *trivet.Head) bool { return u.RunsNew(h) })
	if u.Status.Head != "" {
		i := slices.IndexFunc(left, func(h *trivet.Head) bool { return h.Name == u.Status.Head })
		switch {
		case i < 0:
			return taken, ""
		case isManual(left[i]):
			return waiting, fmt.Sprintf("waits for %s, which does not permit upgrades by command: install %s on its host, "+
				"and start it again", u.Status.Head, u.Spec.Version)
		}
		return waiting, fmt.Sprintf("%s starts again with the new program", u.Status.Head)
	}
	behind := slices.IndexFunc(heads, func(h *trivet.Head) bool {
		return h.Spec.RoleOrDefault() != trivet.RoleWitness && h.Status.Release.Compare(u.Spec.Release) < 0
	})
	switch {
	case len(left) == 0 && behind >= 0:
		return waiting, fmt.Sprintf("waits for %s, whose program is of release %s, and not %s", heads[behind].Name,
			heads[behind].Status.Release, u.Spec.Release)
	case len(left) == 0:
		return finish, ""
	case u.Spec.Paused:
		return waiting, "it is paused"
	}
	return grant, ""
}

// goBack lets one head after the other start with its former program. One that has none keeps the new one.
func goBack(u *trivet.Upgrade, heads []*trivet.Head) (step, string) {
	var left, keep []string
	for _, h := range heads {
		switch {
		case !u.RunsNew(h):
		case canGoBack(h):
			left = append(left, h.Name)
		default:
			keep = append(keep, h.Name)
		}
	}
	switch {
	case u.Status.Head != "" && slices.Contains(left, u.Status.Head):
		return waiting, fmt.Sprintf("%s starts again with its former program", u.Status.Head)
	case u.Status.Head != "":
		return taken, ""
	case len(left) > 0:
		return grant, ""
	case len(keep) > 0:
		return ended, fmt.Sprintf("%s; %s cannot go back by command, and keeps the new one", u.Status.Cause,
			strings.Join(keep, ", "))
	}
	return ended, u.Status.Cause
}

func canGoBack(h *trivet.Head) bool { return !isManual(h) && h.Status.Program.Former }

// failures returns why heads cannot run the new program; empty: none reports that.
func failures(u *trivet.Upgrade, heads []*trivet.Head) string {
	var all []string
	for _, h := range heads {
		if p := h.Status.Program; p != nil && p.Run == u.Spec.Run && p.Failed {
			all = append(all, fmt.Sprintf("%s: %s", h.Name, p.Problem))
		}
	}
	return strings.Join(all, "; ")
}

func isManual(h *trivet.Head) bool { return h.Status.Program != nil && h.Status.Program.Manual }

// order returns the heads in the order in which they start again: witnesses, full heads, and the leader last.
func order(heads []*trivet.Head, leader string) []*trivet.Head {
	rank := func(h *trivet.Head) int {
		switch {
		case h.Spec.RoleOrDefault() == trivet.RoleWitness:
			return 0
		case h.Name != leader:
			return 1
		}
		return 2
	}
	sorted := slices.Clone(heads)
	slices.SortStableFunc(sorted, func(a, b *trivet.Head) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return sorted
}
