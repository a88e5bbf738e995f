package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/peer"
)

// StableTime is how long a head must be healthy before it becomes a voter, or another one starts again: one that
// restarts repeatedly, or lags, would cost the others their quorum.
const StableTime = 3 * time.Second

// promote makes a head that joined a member: a voter, unless it is a standby.
func (c *Reconciler) promote(ctx context.Context, rec *trivet.Head) error {
	if rec.Status.Member == "" {
		return fmt.Errorf("%w: its member is being added", trivet.ErrConflict)
	}
	id, err := memberOf(rec)
	if err != nil {
		return err
	}
	if !isVoter(c.Members.Peers(), rec.Status.Member) {
		if err := c.checkStable(rec.Name); err != nil {
			return err
		}
		if rec.Spec.RoleOrDefault() == trivet.RoleStandby {
			return c.setState(ctx, rec.Name, trivet.HeadMember)
		}
		if err := c.Members.Promote(ctx, id); err != nil {
			return err
		}
	}
	return c.setState(ctx, rec.Name, trivet.HeadMember)
}

// checkStable returns why a head must not become a voter yet, by this head's pings. No head pings itself.
func (c *Reconciler) checkStable(name string) error {
	s, ok := c.Statuses()[name]
	switch {
	case !ok || s.LastHeard.IsZero():
		return fmt.Errorf("%w: it has not responded yet", trivet.ErrUnavailable)
	case s.Err != nil:
		return fmt.Errorf("%w: it does not respond", trivet.ErrUnavailable)
	case s.Leader == "":
		return fmt.Errorf("%w: its member of the store does not know the leader", trivet.ErrUnavailable)
	case s.Lag > peer.MaxLag:
		return fmt.Errorf("%w: it is catching up", trivet.ErrConflict)
	case time.Since(s.HealthySince) < StableTime:
		return fmt.Errorf("%w: it has caught up, and must be healthy for %s", trivet.ErrConflict, StableTime)
	}
	return nil
}
