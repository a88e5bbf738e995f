package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// newMemberPath is the endpoint by which a head whose first start was interrupted gets a new member.
const newMemberPath = "member/new"

// NewMemberResponse is the new member of a head whose first start was interrupted.
type NewMemberResponse struct {
	Member string         `json:"member"`
	Peers  []cluster.Peer `json:"peers"`
}

// newMember replaces the member of a head that is still joining by a new one. Each request does so.
func (s *Server) newMember(r *http.Request, from auth.Peer, _ []byte) (any, error) {
	h, err := s.Records.Heads.Get(from.Name)
	if err != nil {
		return nil, err
	}
	if h.Status.State != trivet.HeadJoining || isVoter(s.Members.Peers(), h.Status.Member) {
		return nil, fmt.Errorf("new member: %w: %s is a voter already", trivet.ErrExists, h.Name)
	}
	if id, err := cluster.ParseID(h.Status.Member); err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
		defer cancel()
		if err := s.Members.Remove(ctx, id); err != nil {
			return nil, err
		}
	}
	h.Status.Member = ""
	peers, err := s.addMember(r.Context(), h)
	return NewMemberResponse{Member: h.Status.Member, Peers: peers}, err
}

// isVoter reports whether a member of the store votes.
func isVoter(peers []cluster.Peer, member string) bool {
	return slices.ContainsFunc(peers, func(p cluster.Peer) bool {
		return cluster.FormatID(p.ID) == member && !p.Learner
	})
}

// newMemberTimeout bounds one request for a new member.
const newMemberTimeout = 10 * time.Second

// requestNewMember requests a new member from the other heads until one responds. (The store derives the IDs of
// members from the time, in seconds.)
func (l *Local) requestNewMember(ctx context.Context) (resp NewMemberResponse, err error) {
	for end := time.Now().Add(joinTimeout); ; {
		var failed error
		for _, p := range l.otherMembers() {
			err := l.callNewMember(ctx, p.URL, &resp)
			if err == nil {
				return resp, nil
			}
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.URL, err))
		}
		if time.Now().After(end) {
			return resp, &trivet.Error{Op: "request a new member", Name: l.Name(),
				Err:  errors.Join(trivet.ErrUnavailable, failed),
				Hint: "start it again when the other heads are up"}
		}
		select {
		case <-ctx.Done():
			return resp, ctx.Err()
		case <-time.After(joinRetryInterval):
		}
	}
}

func (l *Local) callNewMember(ctx context.Context, url string, resp *NewMemberResponse) error {
	ctx, cancel := context.WithTimeout(ctx, newMemberTimeout)
	defer cancel()
	return l.client.Call(ctx, url, newMemberPath, struct{}{}, resp)
}
