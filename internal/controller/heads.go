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
)

// Members is the store's membership, as [cluster.Member] has it.
type Members interface {
	Peers() []cluster.Peer
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
}

// heads makes a head that joined count once it has caught up, and takes one out that is to be removed. Both may be said
// twice, by several heads.
//
// Reads and writes: heads.
type heads struct {
	fleet   *fleet.Fleet
	members Members
}

// catchUp is how often a head that catches up is looked at.
const catchUp = time.Second

func (h *heads) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	rec, err := h.fleet.Heads.Get(name)
	if err != nil || rec.Status.Member == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(rec.Status.Member, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("head %s: member %q: %w", name, rec.Status.Member, trivet.ErrInvalid)
	}
	switch {
	case rec.Spec.Remove && rec.Status.State != trivet.HeadRemoved:
		if err := h.members.Remove(ctx, id); err != nil {
			return 0, err
		}
		return 0, h.state(ctx, name, trivet.HeadRemoved)
	case rec.Status.State == trivet.HeadJoining:
		if h.counts(id) {
			return 0, h.state(ctx, name, trivet.HeadMember)
		}
		if err := h.members.Promote(ctx, id); errors.Is(err, trivet.ErrConflict) || errors.Is(err, trivet.ErrUnavailable) {
			return catchUp, nil
		} else if err != nil {
			return 0, err
		}
		return 0, h.state(ctx, name, trivet.HeadMember)
	}
	return 0, nil
}

func (h *heads) counts(id uint64) bool {
	return slices.ContainsFunc(h.members.Peers(), func(p cluster.Peer) bool { return p.ID == id && !p.Learner })
}

func (h *heads) state(ctx context.Context, name string, s trivet.HeadState) error {
	return h.fleet.Head(ctx, name, func(rec *trivet.Head) bool {
		changed := rec.Status.State != s
		rec.Status.State = s
		return changed
	})
}
