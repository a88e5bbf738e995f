package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/heads"
)

// proofTime bounds what a start waits for the other members' word.
const proofTime = 2 * time.Second

// prove asks the other members whether this head is still one of them, before anything of it runs. Where they say no, for good,
// it ends. Where nobody answers it goes on: without a quorum it writes nothing, and the store's members refuse one that is out.
// Only a head that has just joined must have their word, as it knows nothing yet.
func (s *Server) prove(ctx context.Context) error {
	for end := time.Now().Add(joinPatience); ; {
		told, err := s.askOthers(ctx)
		switch {
		case err == nil || told:
			return err
		case !s.first():
			s.cfg.Log.Warn("no other member tells whether this head is still one; without a quorum it serves reads and boots only", "error", err)
			return nil
		case time.Now().After(end):
			return &trivet.Error{Op: "join", Err: err, Hint: "start it again when the other heads are up"}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// askOthers says whether there was an answer, and the error of who is out.
func (s *Server) askOthers(ctx context.Context) (told bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	if err := s.single(ctx); err != nil {
		return true, err
	}
	others := s.others()
	if len(others) == 0 {
		return true, nil
	}
	type answer struct {
		heads.Greeting
		err error
	}
	answers := make(chan answer, len(others))
	for _, p := range others {
		go func() { // ends with ctx, at the latest
			theirs, err := s.caller.Greet(ctx, p.URL)
			answers <- answer{theirs, err}
		}()
	}
	last := errors.New("they do not know this one")
	for range others {
		a := <-answers
		switch {
		case errors.Is(a.err, trivet.ErrForbidden):
			return true, s.out()
		case a.err != nil:
			last = a.err
		case a.Leader == "":
			last = fmt.Errorf("%w: %s sees no leader", trivet.ErrUnavailable, a.Head)
		case s.adopt(a.Peers):
			return true, nil
		}
	}
	return false, fmt.Errorf("%w: no other member answers: %w", trivet.ErrUnavailable, last)
}

// adopt takes the members that another one knows. A member that starts for the first time must name all of them.
func (s *Server) adopt(peers []cluster.Peer) bool {
	i := slices.IndexFunc(peers, func(p cluster.Peer) bool { return heads.MemberID(p.ID) == s.data.Member || p.URL == s.data.URL })
	if i >= 0 {
		s.data.Peers, s.learning = peers, peers[i].Learner
	}
	return i >= 0
}

// out is the error of a head that was removed.
func (s *Server) out() error {
	return &trivet.Error{Op: "run head", Name: s.data.Name, Hint: heads.HintRejoin,
		Err: fmt.Errorf("%w: it was removed from cluster %s, so it serves nothing", trivet.ErrForbidden, s.root.Cluster())}
}

// others are the other members, as this head last knew them.
func (s *Server) others() (peers []cluster.Peer) {
	s.dataMu.Lock()
	defer s.dataMu.Unlock()
	for _, p := range s.data.Peers {
		if heads.MemberID(p.ID) != s.data.Member && p.URL != "" && p.URL != s.data.URL && p.URL != s.APIURLs()[0] {
			peers = append(peers, p)
		}
	}
	return peers
}

// single refuses to be a copy: where this head has moved, nobody may run as it at its old address.
func (s *Server) single(ctx context.Context) error {
	if s.data.URL == "" || s.data.URL == s.APIURLs()[0] {
		return nil
	}
	theirs, err := s.caller.Greet(ctx, s.data.URL)
	if err != nil || theirs.Head != s.data.Name {
		return nil
	}
	return &trivet.Error{Op: "run head", Name: s.data.Name, Err: fmt.Errorf("%w: %s runs at %s already", trivet.ErrConflict, s.data.Name, s.data.URL),
		Hint: "a head's data may not be copied: stop the other one, or let this one join as a new head: --rejoin --join URL --token TOKEN"}
}
