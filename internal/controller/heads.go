package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	headdoor "github.com/trivet-project/trivet/internal/heads"
)

// Members is the store's membership, as [cluster.Member] has it.
type Members interface {
	Peers() []cluster.Peer
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	Leads() bool
}

// heads makes a head that joined count once it has caught up and is stable, and takes one out that is to be removed. Both may
// be said twice, by several heads.
//
// Reads and writes: heads.
type heads struct {
	fleet   *fleet.Fleet
	members Members
	seen    func() map[string]headdoor.Sight
}

const (
	// catchUp is how often a head that comes or goes is looked at, steady how often another one.
	catchUp, steady = time.Second, 30 * time.Second
	// stableFor is how long all must have been well with a head before it counts: one that comes and goes, or lags, would cost
	// the others their quorum.
	stableFor = 3 * time.Second
	// changeTime bounds one change of the store's members: of two at once the store drops one, and never answers that.
	changeTime = 3 * time.Second
)

func (h *heads) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	rec, err := h.fleet.Heads.Get(name)
	if err != nil {
		return 0, nil
	}
	change, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	switch {
	case rec.Status.State == trivet.HeadRemoved: // a member may have been added for it while it was removed
		if err = h.clear(change, rec); err == nil {
			return steady, nil
		}
	case rec.Spec.Remove:
		err = h.remove(change, rec)
	case rec.Status.State == trivet.HeadJoining:
		err = h.promote(change, rec)
	case rec.Status.Reason != "":
		return steady, h.settled(ctx, name)
	default:
		return steady, h.note(ctx, rec)
	}
	if errors.Is(err, trivet.ErrConflict) || errors.Is(err, trivet.ErrUnavailable) {
		return catchUp, h.because(ctx, name, err)
	}
	return 0, err
}

// remove takes a head's member out of the store, if it has one.
func (h *heads) remove(ctx context.Context, rec *trivet.Head) error {
	if rec.Status.Member != "" {
		id, err := memberOf(rec)
		if err != nil {
			return err
		}
		if err := h.spare(rec); err != nil {
			return err
		}
		if err := h.members.Remove(ctx, id); err != nil {
			return err
		}
	}
	if err := h.clear(ctx, rec); err != nil {
		return err
	}
	return h.state(ctx, rec.Name, trivet.HeadRemoved)
}

// spare refuses to take the last full head that counts out of the store, whatever its record says: the store would, where
// witnesses are left.
func (h *heads) spare(rec *trivet.Head) error {
	for other := range h.fleet.Heads.AllShared() {
		if other.Name != rec.Name && other.Serves() && h.counts(other.Status.Member) {
			return nil
		}
	}
	return fleet.LastHead(rec.Name)
}

// counts says whether a member of the store votes.
func (h *heads) counts(member string) bool {
	return slices.ContainsFunc(h.members.Peers(), func(p cluster.Peer) bool { return headdoor.MemberID(p.ID) == member && !p.Learner })
}

// clear takes what is left of a head out of the store. A learner that will never start would keep all others from joining.
func (h *heads) clear(ctx context.Context, rec *trivet.Head) error {
	peers := h.members.Peers()
	if len(headdoor.Leftovers(h.fleet, rec, peers)) == 0 {
		return nil
	}
	if err := h.fleet.Store.Sync(ctx); err != nil {
		return err
	}
	for _, id := range headdoor.Leftovers(h.fleet, rec, peers) {
		if err := h.members.Remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// promote makes a head count that joined.
func (h *heads) promote(ctx context.Context, rec *trivet.Head) error {
	if rec.Status.Member == "" {
		return fmt.Errorf("%w: its place is being made", trivet.ErrConflict)
	}
	id, err := memberOf(rec)
	if err != nil {
		return err
	}
	if !h.counts(rec.Status.Member) {
		if err := h.stable(rec.Name); err != nil {
			return err
		}
		if err := h.members.Promote(ctx, id); err != nil {
			return err
		}
	}
	return h.state(ctx, rec.Name, trivet.HeadMember)
}

// stable says why a head must not count yet, as this one sees it. No head sees itself.
func (h *heads) stable(name string) error {
	s, ok := h.seen()[name]
	switch {
	case !ok || s.Heard.IsZero():
		return fmt.Errorf("%w: it has not answered yet", trivet.ErrUnavailable)
	case s.Err != nil:
		return fmt.Errorf("%w: it does not answer", trivet.ErrUnavailable)
	case s.Leader == "":
		return fmt.Errorf("%w: its member of the store does not know who leads", trivet.ErrUnavailable)
	case s.Lag > headdoor.MaxLag:
		return fmt.Errorf("%w: it catches up", trivet.ErrConflict)
	case time.Since(s.Since) < stableFor:
		return fmt.Errorf("%w: it has caught up, and must be stable for a moment", trivet.ErrConflict)
	}
	return nil
}

// note writes what a witness cannot write itself.
func (h *heads) note(ctx context.Context, rec *trivet.Head) error {
	s, ok := h.seen()[rec.Name]
	if rec.Spec.Role != trivet.RoleWitness || !ok || s.Started.IsZero() || s.Started.Equal(rec.Status.Started) && s.Version == rec.Status.Version {
		return nil
	}
	return h.fleet.Head(ctx, rec.Name, func(rec *trivet.Head) bool {
		changed := !s.Started.Equal(rec.Status.Started) || s.Version != rec.Status.Version
		rec.Status.Started, rec.Status.Version = s.Started, s.Version
		return changed
	})
}

func memberOf(rec *trivet.Head) (uint64, error) {
	id, err := strconv.ParseUint(rec.Status.Member, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("head %s: member %q: %w", rec.Name, rec.Status.Member, trivet.ErrInvalid)
	}
	return id, nil
}

func (h *heads) state(ctx context.Context, name string, s trivet.HeadState) error {
	return h.fleet.Head(ctx, name, func(rec *trivet.Head) bool {
		changed := rec.Status.State != s
		rec.Status.State, rec.Status.Reason = s, ""
		return changed
	})
}

// settled clears what a member has waited for, which another head may have noted last.
func (h *heads) settled(ctx context.Context, name string) error {
	return h.fleet.Head(ctx, name, func(rec *trivet.Head) bool {
		changed := rec.Status.State == trivet.HeadMember && !rec.Spec.Remove && rec.Status.Reason != ""
		rec.Status.Reason = ""
		return changed
	})
}

// because notes why a head is where it is. Only the head that leads does, as the others may see it otherwise.
func (h *heads) because(ctx context.Context, name string, why error) error {
	if !h.members.Leads() {
		return nil
	}
	return h.fleet.Head(ctx, name, func(rec *trivet.Head) bool {
		waits := rec.Status.State == trivet.HeadJoining || rec.Spec.Remove && rec.Status.State != trivet.HeadRemoved
		changed := waits && rec.Status.Reason != why.Error()
		rec.Status.Reason = why.Error()
		return changed
	})
}
