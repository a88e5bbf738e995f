package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/program"
)

// choose returns the next step by the records, and what is done instead by what this head knows of the others.
func (c *Controller) choose(ctx context.Context, u *trivet.Upgrade) (t action, next step, err error) {
	heads, removing := c.members()
	next, reason := decide(u, heads)
	t = action{do: next, reason: reason}
	if next == begin || next == grant || next == finish {
		if t.broken, err = c.Broken(ctx); err != nil {
			return t, next, err
		}
	}
	suspect := false
	switch {
	case (next == grant || next == finish) && removing != "":
		t.do, t.reason = waiting, fmt.Sprintf("waits until %s is removed", removing)
	case u.Status.Phase == trivet.UpgradeReverting:
		c.chooseBack(u, heads, &t)
	case next == grant || next == finish:
		if reason, suspect = c.notWell(u, heads, t.broken); reason != "" {
			t.do, t.reason = waiting, reason
		}
	case next == waiting:
		suspect = c.isSuspect(u, heads)
	}
	if t.do == grant && t.head == "" {
		t.head = nextOf(u, order(heads, c.Leader()))
	}
	if c.isStuck(u, suspect) {
		t.do, t.reason = revert, fmt.Sprintf("it made no progress for %s: %s", stuckTime, t.reason)
	}
	return t, next, nil
}

// nextOf returns the first head that does not run the new program.
func nextOf(u *trivet.Upgrade, ordered []*trivet.Head) string {
	for _, h := range ordered {
		if !u.RunsNew(h) {
			return h.Name
		}
	}
	return ""
}

// chooseBack chooses what is done while the heads go back. Those that do not respond are left out: they go back when
// they return.
func (c *Controller) chooseBack(u *trivet.Upgrade, heads []*trivet.Head, t *action) {
	waited := c.sinceProgress(u)
	named := slices.IndexFunc(heads, func(h *trivet.Head) bool { return h.Name == u.Status.Head })
	switch {
	case t.do == waiting && named >= 0 && waited >= settleTime && !c.well(heads[named], 0):
		t.do = taken
		return
	case t.do != grant:
		return
	case waited < settleTime:
		t.do, t.reason = waiting, "waits for a moment: a head may be about to start"
		return
	}
	var silent []string
	reason := ""
	for _, h := range order(heads, c.Leader()) {
		if !u.RunsNew(h) || !canGoBack(h) {
			continue
		}
		if !c.well(h, 0) {
			silent = append(silent, h.Name)
			continue
		}
		if reason = program.MayStart(u.Status.Phase, c.others(h.Name)); reason == "" {
			t.head = h.Name
			return
		}
	}
	text := strings.Join(silent, ", ")
	switch {
	case reason == "" && waited >= stuckTime:
		t.do, t.reason = ended, fmt.Sprintf("%s; %s does not respond, and goes back when it returns", u.Status.Cause, text)
	case reason == "":
		t.do, t.reason = waiting, fmt.Sprintf("waits for %s, which does not respond", text)
	default:
		t.do, t.reason = waiting, reason
	}
}

// notWell returns why no head may start again now, or why the upgrade is not complete; empty: all is well. suspect: it
// may be due to the new program.
func (c *Controller) notWell(u *trivet.Upgrade, heads []*trivet.Head, broken []string) (reason string, suspect bool) {
	first := firstFull(u, heads)
	for _, h := range heads {
		if c.well(h, stableTime) {
			continue
		}
		if reason == "" || u.RunsNew(h) && !suspect {
			reason = fmt.Sprintf("waits until %s has responded, with a quorum, for %s", h.Name, stableTime)
			suspect = u.RunsNew(h)
		}
	}
	if reason != "" {
		return reason, suspect
	}
	broken = slices.DeleteFunc(slices.Clone(broken), func(name string) bool {
		return slices.Contains(u.Status.Broken, name)
	})
	switch {
	case len(broken) > 0:
		return fmt.Sprintf("waits until these hold again, see trivet status: %s", strings.Join(broken, ", ")), true
	case first != nil && !c.well(first, u.Spec.SoakOrDefault().D()):
		return fmt.Sprintf("waits until %s has been well with the new program for %s", first.Name, u.Spec.SoakOrDefault().D()), false
	}
	return "", false
}

// isSuspect reports whether the head that is named does not start with the new program although it could: no other head
// keeps it from that, and it is not an operator who has to.
func (c *Controller) isSuspect(u *trivet.Upgrade, heads []*trivet.Head) bool {
	named := slices.IndexFunc(heads, func(h *trivet.Head) bool { return h.Name == u.Status.Head })
	if named < 0 || isManual(heads[named]) {
		return false
	}
	return !c.well(heads[named], 0) || program.MayStart(u.Status.Phase, c.others(u.Status.Head)) == ""
}

// isStuck reports whether something that may be due to the new program is not well for too long.
func (c *Controller) isStuck(u *trivet.Upgrade, suspect bool) bool {
	now := c.now()
	switch {
	case u.Status.Phase != trivet.UpgradeSwitching || u.Spec.Paused || c.progressSince.Equal(now):
		c.badSince, c.goodSince = time.Time{}, time.Time{}
		return false
	case suspect:
		if c.badSince.IsZero() {
			c.badSince = now
		}
		c.goodSince = time.Time{}
	case c.goodSince.IsZero():
		c.goodSince = now
	case now.Sub(c.goodSince) >= recoveredTime:
		c.badSince = time.Time{}
	}
	return suspect && now.Sub(c.badSince) >= stuckTime
}
