package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// verifyPath is the endpoint by which a head verifies that it is a member.
const verifyPath = "member/verify"

// VerifyRequest is the ID of the caller's member.
type VerifyRequest struct {
	Member string `json:"member"`
}

// VerifyResponse is what another head knows of the store's members.
type VerifyResponse struct {
	Head   string         `json:"head"`
	Leader string         `json:"leader,omitempty"` // empty: it knows none
	Peers  []cluster.Peer `json:"peers"`
	Index  uint64         `json:"index,omitempty"` // of an entry of the log that the caller's member has acknowledged
}

// verify responds with all members, with ErrForbidden to a head that was removed, and with ErrUnavailable to one that
// is not known.
func (s *Server) verify(_ *http.Request, from auth.Peer, body []byte) (any, error) {
	var req VerifyRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("verify: %w: %w", trivet.ErrInvalid, err)
	}
	err := (&WitnessVerifier{s.Members}).VerifyMember(from.Name)
	if s.Records != nil {
		err = (&Verifier{s.Records, s.Members}).VerifyListed(from.Name, req.Member)
	}
	if err != nil {
		return nil, err
	}
	self := s.Info()
	resp := VerifyResponse{Head: self.Head, Leader: self.Leader, Peers: s.Members.Peers()}
	if s.Acknowledged != nil {
		resp.Index = s.Acknowledged(from.Name, req.Member)
	}
	return resp, nil
}

const (
	// verifyTimeout bounds the wait for the responses of the other members.
	verifyTimeout = 2 * time.Second
	// verifyRetryInterval is the time between two rounds of requests.
	verifyRetryInterval = time.Second
)

// verify verifies by the other members that this head is one of them, before anything of it runs. It fails where one
// responds that this head was removed. Where none responds the start continues: without a quorum the head writes
// nothing, and the store's members refuse one that was removed. Only a head that joins needs a response, as it knows
// nothing yet.
func (l *Local) verify(ctx context.Context) error {
	for end := time.Now().Add(joinTimeout); ; {
		verified, err := l.verifyOnce(ctx)
		switch {
		case err == nil || verified:
			return err
		case !l.IsJoining():
			l.cfg.Log.Warn("no other member responds to verify the membership of this head; "+
				"without a quorum it serves reads and boots only",
				"error", err)
			l.unverified = true
			return nil
		case time.Now().After(end):
			return &trivet.Error{Op: "join", Err: err, Hint: "start it again when the other heads are up"}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(verifyRetryInterval):
		}
	}
}

// verifyOnce reports whether the result is final, and the error of a head that was removed.
func (l *Local) verifyOnce(ctx context.Context) (final bool, err error) {
	if err := l.checkNoCopy(ctx); err != nil {
		return true, err
	}
	others := l.otherMembers()
	if len(others) == 0 {
		return true, nil
	}
	index, err := cluster.LastIndex(l.path("store"))
	if err != nil {
		return true, &trivet.Error{Op: "open store", Name: l.path("store"), Err: err, Hint: cluster.HintReplace}
	}
	// The timeout begins here: the log may have a hundred megabytes, which a busy computer reads for seconds.
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	type result struct {
		VerifyResponse
		err error
	}
	results := make(chan result, len(others))
	req := VerifyRequest{Member: l.data.Member} // not read by the goroutines, which may outlast this call
	for _, p := range others {
		go func() { // ends with ctx, at the latest
			var r result
			r.err = l.client.Call(ctx, p.URL, verifyPath, req, &r.VerifyResponse)
			results <- r
		}()
	}
	last := errors.New("this head is not among the members that they know")
	for range others {
		r := <-results
		switch {
		case errors.Is(r.err, trivet.ErrForbidden):
			return true, l.ErrRemoved()
		case r.err == nil && r.Index > index:
			return true, l.errOldLog(r.Head, r.Index, index)
		case r.err != nil:
			last = r.err
		case r.Leader == "":
			last = fmt.Errorf("%w: %s knows no leader", trivet.ErrUnavailable, r.Head)
		case l.adoptPeers(r.Peers):
			return true, nil
		}
	}
	return false, fmt.Errorf("%w: no other member responds: %w", trivet.ErrUnavailable, last)
}

// errOldLog is the error of a head whose log ends before what it has acknowledged to another head: it was put back from
// a copy. Its member would vote for a log without these entries.
func (l *Local) errOldLog(head string, acknowledged, index uint64) error {
	return &trivet.Error{Op: "open store", Name: l.path("store"), Hint: cluster.HintReplace,
		Err: fmt.Errorf("%w: it is older data: its log ends at entry %d, and this head has acknowledged entry %d to %s",
			trivet.ErrConflict, index, acknowledged, head)}
}

// adoptPeers stores the members that another head knows, if this one is among them. A member needs all of them for
// its first start.
func (l *Local) adoptPeers(peers []cluster.Peer) bool {
	i := slices.IndexFunc(peers, func(p cluster.Peer) bool {
		return cluster.FormatID(p.ID) == l.data.Member || p.URL == l.data.URL
	})
	if i >= 0 {
		l.data.Peers, l.learner = peers, peers[i].Learner
	}
	return i >= 0
}

// checkNoCopy refuses to run a copy of another head's data: where this head has a new address, no head of its name
// may run at the old one.
func (l *Local) checkNoCopy(ctx context.Context) error {
	if l.data.URL == "" || l.data.URL == l.addr.Peer {
		return nil
	}
	info, err := l.client.Ping(ctx, l.data.URL)
	if err != nil || info.Head != l.data.Name {
		return nil
	}
	return &trivet.Error{Op: "run head", Name: l.data.Name,
		Err: fmt.Errorf("%w: %s runs at %s already", trivet.ErrConflict, l.data.Name, l.data.URL),
		Hint: "a head's data must not be copied: stop the other head, or let this one join as a new head: " +
			"--rejoin --join URL --token TOKEN"}
}
