package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// join answers a join request. Everything that could be wrong is checked before the token is used.
func (s *Server) join(r *http.Request, _ auth.Peer, body []byte) (any, error) {
	var req JoinRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("join: %w: %w", trivet.ErrInvalid, err)
	}
	if err := req.validate(); err != nil {
		return nil, err
	}
	var err error
	if req.machine, err = s.machineToken(req.Token); err != nil {
		return nil, err
	}
	if req.replaces, err = s.checkToken(r.Context(), &req); err != nil {
		return nil, err
	}
	if err := s.checkSource(r, &req); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context, *JoinRequest) error{
		s.checkProtocol, s.checkClock, s.checkAddress, s.checkReachable,
	} {
		if err := check(r.Context(), &req); err != nil {
			return nil, err
		}
	}
	h, err := s.Records.Join(r.Context(), &req)
	if err != nil {
		return nil, err
	}
	peers, err := s.addMember(r.Context(), h)
	if err != nil {
		return nil, err
	}
	s.Log.Info("head is joining", "head", h.Name, "role", h.Spec.RoleOrDefault(), "peer", req.Peer, "from", r.RemoteAddr)
	return s.joinResponse(h, peers, req.CSR)
}

// checkToken checks the token without using it, and returns the head that it replaces. Few checks run at a time; the
// others wait.
func (s *Server) checkToken(ctx context.Context, req *JoinRequest) (replaces string, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	select {
	case s.joins <- struct{}{}:
		defer func() { <-s.joins }()
		return s.Records.CheckJoin(ctx, req)
	case <-ctx.Done():
		return "", fmt.Errorf("join: %w: too many concurrent join requests: %w", trivet.ErrUnavailable, ctx.Err())
	}
}

// joinResponse signs the new head's certificate.
func (s *Server) joinResponse(h *trivet.Head, peers []cluster.Peer, csr []byte) (*JoinResponse, error) {
	id := auth.Peer{Name: h.Name, Role: auth.PeerHead}
	if h.Spec.RoleOrDefault() == trivet.RoleWitness {
		id.Role, id.Host = auth.PeerWitness, hostOf(h.Status.Peer)
	}
	cert, err := s.Keys.CA.SignPeer(id, csr, time.Now())
	if err != nil {
		return nil, err
	}
	root := &s.Keys.CA.Root
	resp := &JoinResponse{Name: h.Name, Role: h.Spec.RoleOrDefault(), Cluster: root.Cluster(), Member: h.Status.Member,
		Peers: peers,
		CA:    root.PEM(), Cert: cert}
	if s.Incarnation != nil {
		resp.Incarnation = s.Incarnation()
	}
	if id.Role == auth.PeerHead {
		resp.Keys = s.Keys.Bundle()
	}
	return resp, nil
}
