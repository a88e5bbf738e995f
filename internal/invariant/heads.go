package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Pages of the documentation that remedies name.
const (
	pageRecovery = "docs/recovery.md"
	pageHeads    = "docs/heads.md"
)

// voting are the voters of the store.
type voting struct {
	all, up, down []string
}

func votersOf(f *trivet.StatusFacts) (v voting) {
	for _, h := range f.Heads {
		switch {
		case !h.Voter:
			continue
		case h.Down:
			v.down = append(v.down, h.Name)
		default:
			v.up = append(v.up, h.Name)
		}
		v.all = append(v.all, h.Name)
	}
	return v
}

// majority returns how many of the voters must be up.
func (v voting) majority() int { return len(v.all)/2 + 1 }

// quorum: writes are possible.
func quorum(f *trivet.StatusFacts, r *result) {
	v := votersOf(f)
	switch {
	case f.Quorum:
	case len(v.up) < v.majority():
		r.broken(fmt.Sprintf("start %s; where they are lost for good: trivet recover --from-survivor on a full head that "+
			"is left (%s)", names(v.down), pageRecovery), "no quorum: %d of %d voters respond, and %d must; nothing "+
			"can be written", len(v.up), len(v.all), v.majority())
	default:
		r.broken("wait for some seconds; then look into the logs of the heads, and at their links and clocks",
			"%s is connected to no leader, although %d of %d voters respond; nothing can be written", f.Head, len(v.up),
			len(v.all))
	}
	if len(v.down) > 0 {
		r.note("voters that do not respond: %s", names(v.down))
	}
	r.holds("%d of %d voters respond; %d are needed", len(v.up), len(v.all), v.majority())
}

// heads: each head responds, and is a member with a quorum.
func heads(f *trivet.StatusFacts, r *result) {
	for i := range f.Heads {
		h := &f.Heads[i]
		switch {
		case h.Down:
			r.broken(replaceLost(f, h), "%s %s%s", h.Name, "does not respond", lastHeard(h))
			if h.Problem != "" {
				r.note("%s: %s", h.Name, h.Problem)
			}
		case h.Own != nil && f.Quorum && !h.Own.Quorum:
			r.broken("check its link to the other heads, and its log", "%s is cut off from the quorum", h.Name)
		case h.State == string(trivet.HeadJoining):
			r.warn("wait; to follow it: trivet head list", "%s joins%s", h.Name, because(h.Problem))
		case h.State == "removing":
			r.warn("wait; to follow it: trivet head list", "%s is being removed%s", h.Name, because(h.Problem))
		case h.Problem != "" && h.ClockAhead == 0: // that of a clock is reported as such
			r.note("%s: %s", h.Name, h.Problem)
		}
		if h.Role == trivet.RoleStandby && h.Lag > 0 {
			r.note("%s, the standby, is %s behind", h.Name, count(int(h.Lag), "revision"))
		}
	}
	r.holds("%s %s", count(len(f.Heads), "head"), has(len(f.Heads), "responds", "respond"))
}

// replaceLost is what to do about a head that does not respond. Without a quorum none can be replaced.
func replaceLost(f *trivet.StatusFacts, h *trivet.HeadFacts) string {
	if !f.Quorum {
		return "start it; where it is lost: see the invariant quorum"
	}
	return fmt.Sprintf("start it; where it is lost: trivet head replace %s (%s)", h.Name, pageHeads)
}

func lastHeard(h *trivet.HeadFacts) string {
	if h.LastHeard == nil {
		return ""
	}
	return ", last heard " + age(h.LastHeard.D()) + " ago"
}

func because(problem string) string {
	if problem == "" {
		return ""
	}
	return ": " + problem
}

// versions: all heads run the same version, and use what it has; and so do the agents of platforms.
func versions(f *trivet.StatusFacts, r *result) {
	of := map[string][]string{}
	for _, h := range f.Heads {
		if h.Version != "" {
			of[h.Version] = append(of[h.Version], h.Name)
		}
	}
	all := slices.Sorted(maps.Keys(of))
	for _, version := range all {
		r.note("version %s: %s", version, names(of[version]))
	}
	if f.ClusterVersion != "" {
		r.note("cluster version %s", f.ClusterVersion)
	}
	if f.Upgrade != "" {
		r.warn("to follow it: trivet upgrade status", "an upgrade is in progress: %s", f.Upgrade)
	}
	if len(all) > 1 {
		r.warn("update the other heads: trivet upgrade run FILE, or each on its host", "the heads run %d versions: %s",
			len(all), strings.Join(all, ", "))
	}
	platforms := slices.Clone(f.Platforms)
	slices.SortFunc(platforms, func(a, b trivet.PlatformFacts) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range platforms {
		r.warn("trivet platform usage "+p.Name+"; and docs/platforms.md", "platform %s does not follow the heads: %s", p.Name,
			p.Reason)
	}
	r.holds("all heads run %s", strings.Join(all, ""))
}

// Differences of clocks. A head whose clock differs by more than a minute cannot join, and tokens depend on clocks.
const (
	clockWarning = 5 * time.Second
	clockBroken  = time.Minute
)

// clocks: the heads' clocks agree.
func clocks(f *trivet.StatusFacts, r *result) {
	most := time.Duration(0)
	for _, h := range f.Heads {
		d := h.ClockAhead.D()
		most = max(most, d.Abs())
		direction := "ahead of"
		if d < 0 {
			direction = "behind"
		}
		text := fmt.Sprintf("the clock of %s is %s %s that of %s", h.Name, age(d.Abs()), direction, f.Head)
		const remedy = "synchronize the clocks of the heads by NTP"
		switch {
		case d.Abs() > clockBroken:
			r.broken(remedy, "%s", text)
		case d.Abs() > clockWarning:
			r.warn(remedy, "%s", text)
		}
	}
	r.holds("the clocks differ by %s at most", most.Round(100*time.Millisecond))
}
