package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// action is a step that a head takes, and what it knows.
type action struct {
	do     step
	reason string
	broken []string // the invariants that do not hold
	leader string   // the head of the store's leader
}

// take takes a step in a transaction.
func (c *Controller) take(tx *store.Tx, u *trivet.Upgrade, heads []*trivet.Head, t *action) error {
	st := &u.Status
	switch t.do {
	case waiting:
		return setReason(st, t.reason)
	case begin:
		if rotating, err := c.caRotates(tx); rotating || err != nil { // it starts heads again, too
			return cmp.Or(err, setReason(st, "waits until the CA is rotated"))
		}
		*st = trivet.UpgradeStatus{Run: u.Spec.Run, Phase: trivet.UpgradeStaging, Former: tx.ClusterVersion(),
			Broken: t.broken, Started: c.now().UTC(), Events: st.Events}
		return c.event(tx, u, trivet.ReasonUpgradeStarted, "version "+u.Spec.Version+" is to run on all heads")
	case start:
		st.Phase, st.Reason = trivet.UpgradeSwitching, ""
	case grant:
		return c.grant(tx, u, heads, t)
	case taken:
		st.Head = ""
	case finish:
		return c.finish(tx, u)
	case revert:
		st.Phase, st.Cause, st.Reason, st.Head = trivet.UpgradeReverting, t.reason, "", ""
		return c.event(tx, u, trivet.ReasonUpgradeReverting, "the heads go back to their former program: "+t.reason)
	case ended:
		st.Phase, st.Cause, st.Reason, st.Head = trivet.UpgradeReverted, t.reason, "", ""
		st.Ended = c.now().UTC()
		return c.event(tx, u, trivet.ReasonUpgradeReverted, "no head runs version "+u.Spec.Version+": "+t.reason)
	}
	return nil
}

// setReason sets what the upgrade waits for.
func setReason(st *trivet.UpgradeStatus, reason string) error {
	if st.Reason == reason {
		return errUnchanged
	}
	st.Reason = reason
	return nil
}

// caRotates reports whether a rotation of the CA has begun.
func (c *Controller) caRotates(tx *store.Tx) (bool, error) {
	k, err := c.Tables.Keys.In(tx).Get(trivet.CAKey)
	if errors.Is(err, trivet.ErrNotFound) {
		return false, nil
	}
	return err == nil && k.Status.Phase != "", err
}

// grant names the next head that is to start again.
func (c *Controller) grant(tx *store.Tx, u *trivet.Upgrade, heads []*trivet.Head, t *action) error {
	back := u.Status.Phase == trivet.UpgradeReverting
	for _, h := range order(heads, t.leader) {
		if runsNew(u, h) != back || back && (!canGoBack(h) || h.Name != c.Head && !c.Well(h, 0)) {
			continue
		}
		u.Status.Head = h.Name
		if back {
			return nil
		}
		u.Status.Reason = ""
		return c.event(tx, u, trivet.ReasonUpgradeHead, h.Name+" starts again with version "+u.Spec.Version)
	}
	return errUnchanged // those that are left do not respond
}

// finish completes the upgrade, and raises the cluster's version.
func (c *Controller) finish(tx *store.Tx, u *trivet.Upgrade) error {
	site, err := c.Tables.Sites.In(tx).Get(trivet.SiteName)
	if errors.Is(err, trivet.ErrNotFound) {
		site, err = &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}}, nil
	}
	if err != nil {
		return err
	}
	if site.Status.ClusterVersion.Compare(u.Spec.Release) < 0 {
		site.Status.ClusterVersion = u.Spec.Release
		if err := c.Tables.Sites.In(tx).Put(site); err != nil {
			return err
		}
	}
	st := &u.Status
	st.Phase, st.Reason, st.Head, st.Ended = trivet.UpgradeDone, "", "", c.now().UTC()
	return c.event(tx, u, trivet.ReasonUpgraded, "all heads run version "+u.Spec.Version+enables(st.Former, u.Spec.Release))
}

// maxEnabled bounds what an event says of a release.
const maxEnabled = 20

// enables says what a release adds to the one before.
func enables(former, now trivet.Release) string {
	added := trivet.AddedSince(former, now)
	if former.Compare(now) >= 0 {
		return ""
	}
	text := fmt.Sprintf("; the cluster's version is %s instead of %s", now, former)
	if n := len(added) - maxEnabled; n > 0 {
		added = append(added[:maxEnabled:maxEnabled], fmt.Sprintf("and %d more", n))
	}
	if len(added) > 0 {
		text += ", which adds " + strings.Join(added, ", ")
	}
	return text
}

// event writes an event of the record.
func (c *Controller) event(tx *store.Tx, u *trivet.Upgrade, reason, message string) error {
	u.Status.Events++
	return c.Tables.Events.In(tx).Put(&trivet.Event{
		Meta: trivet.Meta{Name: trivet.UpgradeEventName(u.Status.Events)},
		Spec: trivet.EventSpec{Subject: "upgrade/" + u.Name, SubjectUID: u.UID, Seq: u.Status.Events, Time: c.now(),
			Reason: reason, Message: message, Head: c.Head},
	})
}

// firstFull returns the only full head that runs the new program, where others do not yet; nil: there is none.
func firstFull(u *trivet.Upgrade, heads []*trivet.Head) *trivet.Head {
	var first *trivet.Head
	full, new := 0, 0
	for _, h := range heads {
		if h.Spec.Role == trivet.RoleWitness {
			continue
		}
		full++
		if runsNew(u, h) {
			first = h
			new++
		}
	}
	if new != 1 || full == 1 {
		return nil
	}
	return first
}

// mayGoBack returns why no head may go back now: another one has just started, or the others would be no quorum; empty:
// one may. Heads that do not respond do not keep the others from it.
func mayGoBack(heads []*trivet.Head, well wellFunc) string {
	var down []string
	for _, h := range heads {
		switch {
		case !well(h, 0):
			down = append(down, h.Name)
		case !well(h, stableTime):
			return notStable(h)
		}
	}
	if len(down) == 0 || len(heads)-len(down)-1 >= len(heads)/2+1 {
		return ""
	}
	return fmt.Sprintf("waits for %s: without another head there is no quorum", strings.Join(down, ", "))
}

func notStable(h *trivet.Head) string {
	return fmt.Sprintf("waits until %s has responded, with a quorum, for %s", h.Name, stableTime)
}
