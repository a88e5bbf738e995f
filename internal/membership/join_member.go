package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// addMember adds the head's member to the store as a learner and records its ID. A retry finds that member.
func (s *Server) addMember(ctx context.Context, h *trivet.Head) ([]cluster.Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if h.Status.Member == "" {
		if err := s.addNewMember(ctx, h); err != nil {
			return nil, err
		}
	}
	peers := s.Members.Peers()
	if !slices.ContainsFunc(peers, func(p cluster.Peer) bool { return cluster.FormatID(p.ID) == h.Status.Member }) {
		return nil, fmt.Errorf("join: %w: this head has not received the new member yet", trivet.ErrUnavailable)
	}
	return peers, nil
}

func (s *Server) addNewMember(ctx context.Context, h *trivet.Head) error {
	if err := s.checkOneLearner(h); err != nil {
		return err
	}
	if err := s.removeReplaced(ctx, h); err != nil {
		return err
	}
	id, _, err := s.Members.Add(ctx, h.Status.Peer)
	if errors.Is(err, trivet.ErrExists) {
		// checkAddress has found no such head: another head added this one's own member
		err = fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if err != nil {
		return err
	}
	if err := s.checkUnused(h, id); err != nil {
		return err
	}
	return s.recordMember(ctx, h, id)
}

// checkOneLearner refuses to add a member while another one is a learner: one head joins at a time, and one is a
// standby.
func (s *Server) checkOneLearner(h *trivet.Head) error {
	for _, p := range s.Members.Peers() {
		if !p.Learner || p.URL == h.Status.Peer {
			continue
		}
		other := s.headOf(p)
		standby := other != nil && other.Spec.RoleOrDefault() == trivet.RoleStandby &&
			other.Status.State == trivet.HeadMember
		switch {
		case !standby:
			name := p.URL
			if other != nil {
				name = other.Name
			}
			return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s is joining, and one head joins at a time",
				trivet.ErrConflict, name),
				Hint: fmt.Sprintf("wait until it is a member; if it does not come up: trivet head remove %s", name)}
		case h.Spec.RoleOrDefault() == trivet.RoleStandby && other.Name != h.Status.Replaces:
			return errStandby(other.Name)
		}
	}
	return nil
}

// headOf returns the record of the head of a member; nil: there is none.
func (s *Server) headOf(p cluster.Peer) *trivet.Head {
	for rec := range s.Records.Heads.AllShared() {
		if rec.Status.Member == cluster.FormatID(p.ID) {
			return rec
		}
	}
	return nil
}

// removeReplaced removes the head that this one replaces: one that is down would prevent the join. Where the old head
// is the last full one by now, it stays.
func (s *Server) removeReplaced(ctx context.Context, h *trivet.Head) error {
	if h.Status.Replaces == "" {
		return nil
	}
	old, err := s.Records.Heads.GetShared(h.Status.Replaces)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return nil
	case err != nil:
		return err
	case old.Name == s.Info().Head:
		return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s is the head that is replaced", trivet.ErrUnavailable,
			old.Name),
			Hint: "pass the URL of another head by --join"}
	}
	if err := s.Records.Remove(ctx, old.Name); err != nil || old.Status.Member == "" {
		return err
	}
	id, err := memberOf(old)
	if err != nil {
		return err
	}
	return s.Members.Remove(ctx, id)
}

// checkUnused refuses the member of another head at the same address, which is about to be removed: that head may
// have its data and may have acknowledged what a new one would not have.
func (s *Server) checkUnused(h *trivet.Head, id uint64) error {
	for rec := range s.Records.Heads.AllShared() {
		if rec.Name != h.Name && rec.Status.Member == cluster.FormatID(id) {
			return fmt.Errorf("join: %w: the member of %s, which had this address, is not removed yet",
				trivet.ErrUnavailable, rec.Name)
		}
	}
	return nil
}

// recordMember records the member that was added for a head. A head that was removed meanwhile must not have one.
func (s *Server) recordMember(ctx context.Context, h *trivet.Head, id uint64) error {
	h.Status.Member = cluster.FormatID(id)
	removed := false
	err := s.Records.Update(ctx, h.Name, func(rec *trivet.Head) bool {
		removed = rec.Spec.Remove || rec.Status.State == trivet.HeadRemoved
		rec.Status.Member = h.Status.Member
		return !removed
	})
	if err != nil || !removed {
		return err
	}
	for _, id := range s.Records.orphans(h, []cluster.Peer{{ID: id}}) {
		if err := s.Members.Remove(ctx, id); err != nil { // the reconciler retries
			s.Log.Warn("the member of a head that was removed while it joined is not removed yet", "head", h.Name,
				"error", err)
		}
	}
	return &trivet.Error{Op: "join", Kind: "Head", Name: h.Name, Hint: hintRejoin,
		Err: fmt.Errorf("%w: it was removed meanwhile", trivet.ErrForbidden)}
}
