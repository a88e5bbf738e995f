package membership

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Remove requests the removal of a head, which is final. It fails with ErrConflict for the last full head.
func (r *Records) Remove(ctx context.Context, name string) error {
	return r.update(ctx, func(tx *store.Tx) error {
		h, err := r.removable(tx, name)
		switch {
		case err != nil:
			return err
		case h.Spec.Remove || h.Status.State == trivet.HeadRemoved:
			return errUnchanged
		}
		h.Spec.Remove = true
		return r.Heads.In(tx).Put(h)
	})
}

// removable returns the record of a head that may be removed, as another full head is a member and stays. The
// transaction compares that one's record too: of two concurrent removals that rely on each other's head, the second
// fails.
func (r *Records) removable(tx *store.Tx, name string) (*trivet.Head, error) {
	heads := r.Heads.In(tx)
	h, err := heads.Get(name)
	if err != nil {
		return nil, err
	}
	for _, listed := range heads.ListBy(state.ByMember, state.IsMember) {
		if listed.Name == name {
			continue
		}
		other, err := heads.Get(listed.Name)
		if err != nil {
			return nil, err
		}
		if other.Votes() && other.Status.State == trivet.HeadMember {
			return h, nil
		}
	}
	return nil, errLastHead(name)
}

// errLastHead is the error of the removal of the last full head: it has all content and keys, which no witness has.
func errLastHead(name string) error {
	return &trivet.Error{Op: "remove", Kind: "Head", Name: name,
		Err:  fmt.Errorf("%w: no other full head that votes stays", trivet.ErrConflict),
		Hint: "let another one join first, by 'trivet head token', and wait until it is a voter: trivet head list"}
}

// remove removes a head's member from the store, if it has one.
func (c *Reconciler) remove(ctx context.Context, rec *trivet.Head) error {
	if rec.Status.Member != "" {
		id, err := memberOf(rec)
		if err != nil {
			return err
		}
		if err := c.checkNotLast(rec); err != nil {
			return err
		}
		if err := c.Members.Remove(ctx, id); err != nil {
			return err
		}
	}
	if err := c.removeOrphans(ctx, rec); err != nil {
		return err
	}
	return c.Records.setRemoved(ctx, rec.Name)
}

// setRemoved records that a head was removed, and revokes the credential in its data directory.
func (r *Records) setRemoved(ctx context.Context, name string) error {
	return r.update(ctx, func(tx *store.Tx) error {
		h, err := r.Heads.In(tx).Get(name)
		switch {
		case err != nil:
			return err
		case h.Status.State == trivet.HeadRemoved: // another head was first
			return errUnchanged
		}
		for _, t := range r.Tokens.In(tx).ListBy(state.ByHead, name) {
			if t.Spec.Account != adminAccount {
				continue
			}
			if err := r.Tokens.In(tx).Delete(t.Name); err != nil && !errors.Is(err, trivet.ErrNotFound) {
				return err
			}
		}
		h.Status.State, h.Status.Reason, h.Status.Removed = trivet.HeadRemoved, "", r.now().UTC()
		return r.Heads.In(tx).Put(h)
	})
}

// checkNotLast refuses to remove the last full voter from the store, whatever its record says: the store itself would
// allow it where witnesses are left.
func (c *Reconciler) checkNotLast(rec *trivet.Head) error {
	peers := c.Members.Peers()
	for other := range c.Records.Heads.AllShared() {
		if other.Name != rec.Name && other.Serves() && isVoter(peers, other.Status.Member) {
			return nil
		}
	}
	return errLastHead(rec.Name)
}

// removeOrphans removes the members that a removed head left in the store. A learner that never starts would prevent
// all others from joining.
func (c *Reconciler) removeOrphans(ctx context.Context, rec *trivet.Head) error {
	peers := c.Members.Peers()
	if len(c.Records.orphans(rec, peers)) == 0 {
		return nil
	}
	if err := c.Records.Store.Sync(ctx); err != nil {
		return err
	}
	for _, id := range c.Records.orphans(rec, peers) {
		if err := c.Members.Remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// orphans returns the store's members of a head that is removed: the one of its record, and one that was added for it
// and is not in its record. The latter has never started, so it is known by its address only, and may become the
// member of a head that joins at that address. peers must be older than the records: a head that joins has a record
// before it has a member.
func (r *Records) orphans(h *trivet.Head, peers []cluster.Peer) (ids []uint64) {
	for _, p := range peers {
		own := cluster.FormatID(p.ID) == h.Status.Member
		unrecorded := p.Learner && p.Name == "" && p.URL == h.Status.Peer
		if own && !r.usedByOther(h, p) || unrecorded && !r.usedByOther(h, p) && !r.claimable(h, p) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// usedByOther reports whether a member is that of another head that is not removed.
func (r *Records) usedByOther(h *trivet.Head, p cluster.Peer) bool {
	for rec := range r.Heads.AllShared() {
		if rec.Name != h.Name && rec.Status.State != trivet.HeadRemoved && rec.Status.Member == cluster.FormatID(p.ID) {
			return true
		}
	}
	return false
}

// claimable reports whether a member may become that of another head, which joins at its address.
func (r *Records) claimable(h *trivet.Head, p cluster.Peer) bool {
	for rec := range r.Heads.AllShared() {
		if rec.Name != h.Name && rec.Status.State == trivet.HeadJoining && rec.Status.Member == "" &&
			!rec.Spec.Remove &&
			rec.Status.Peer == p.URL {
			return true
		}
	}
	return false
}
