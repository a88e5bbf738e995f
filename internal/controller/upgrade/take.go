package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// action is a step that a head takes, and what it knows.
type action struct {
	do     step
	reason string
	broken []string // the invariants that do not hold
	head   string   // that is to start again
}

// take takes a step in a transaction.
func (c *Controller) take(tx *store.Tx, u *trivet.Upgrade, heads []*trivet.Head, t *action) error {
	st := &u.Status
	switch t.do {
	case waiting:
		return setReason(st, t.reason)
	case begin:
		if rotating, err := c.caRotatesIn(tx); err != nil || rotating && !u.Spec.Rollback { // it starts heads again, too
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
		return c.event(tx, u, trivet.ReasonUpgradeReverted, "the upgrade to version "+u.Spec.Version+" was reverted: "+
			t.reason)
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

// caRotatesIn reports whether a rotation of the CA has begun. The commit compares it.
func (c *Controller) caRotatesIn(tx *store.Tx) (bool, error) {
	k, err := c.Tables.Keys.In(tx).Get(trivet.CAKey)
	if errors.Is(err, trivet.ErrNotFound) {
		return false, nil
	}
	return err == nil && k.Status.Phase != "", err
}

// grant names the next head that is to start again.
func (c *Controller) grant(tx *store.Tx, u *trivet.Upgrade, heads []*trivet.Head, t *action) error {
	back := u.Status.Phase == trivet.UpgradeReverting
	i := slices.IndexFunc(heads, func(h *trivet.Head) bool { return h.Name == t.head })
	if i < 0 || u.RunsNew(heads[i]) != back { // it was removed, or has done so
		return errUnchanged
	}
	u.Status.Head, u.Status.Reason = t.head, ""
	if back {
		return nil
	}
	return c.event(tx, u, trivet.ReasonUpgradeHead, t.head+" starts again with version "+u.Spec.Version)
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
	return c.event(tx, u, trivet.ReasonUpgraded, "all heads run version "+u.Spec.Version+
		enables(st.Former, u.Spec.Release))
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
		if h.Spec.RoleOrDefault() == trivet.RoleWitness {
			continue
		}
		full++
		if u.RunsNew(h) {
			first = h
			new++
		}
	}
	if new != 1 || full == 1 {
		return nil
	}
	return first
}
