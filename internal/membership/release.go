package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// RaiseClusterVersion raises the cluster's version to the lowest release of the full heads, which the transaction
// compares: a head that starts with an older one meanwhile makes it run again, or reads the new one and is refused.
// An upgrade in progress raises it when it is complete: until then its heads may go back.
func (r *Records) RaiseClusterVersion(ctx context.Context) error {
	return r.update(ctx, func(tx *store.Tx) error {
		lowest, err := r.lowestRelease(tx)
		if err != nil {
			return err
		}
		site, err := r.Sites.In(tx).Get(trivet.SiteName)
		if errors.Is(err, trivet.ErrNotFound) {
			site, err = &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}}, nil
		}
		if err != nil || lowest.Compare(site.Status.ClusterVersion) <= 0 {
			return errors.Join(err, errUnchanged)
		}
		u, err := r.Upgrades.In(tx).Get(trivet.UpgradeName)
		if err == nil && u.InProgress() {
			return errUnchanged
		}
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
		site.Status.ClusterVersion = lowest
		return r.Sites.In(tx).Put(site)
	})
}

// lowestRelease returns the lowest release of the full heads. One that joins has none before it has started, when
// checkRelease checks it; a witness does nothing but vote.
func (r *Records) lowestRelease(tx *store.Tx) (lowest trivet.Release, err error) {
	first := true
	for _, listed := range r.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		h, err := r.Heads.In(tx).Get(listed.Name)
		if err != nil {
			return "", err
		}
		starts := h.Status.State == trivet.HeadJoining && h.Status.Release == ""
		if h.Spec.RoleOrDefault() == trivet.RoleWitness || starts {
			continue
		}
		if first || h.Status.Release.Compare(lowest) < 0 {
			lowest, first = h.Status.Release, false
		}
	}
	return lowest, nil
}

// checkRelease refuses a head whose release is older than what the cluster has begun to use.
func (r *Records) checkRelease(tx *store.Tx, head string, release trivet.Release) error {
	if reached := tx.ClusterVersion(); release.Compare(reached) < 0 {
		return &trivet.Error{Op: "register", Kind: "Head", Name: head,
			Hint: "install the release of the other heads, or a later one",
			Err: fmt.Errorf("%w: this program is of release %s, and the cluster uses what release %s added",
				trivet.ErrInvalid, release, reached)}
	}
	return nil
}
