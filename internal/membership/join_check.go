package membership

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
)

// checkProtocol refuses a head whose version speaks another protocol.
func (s *Server) checkProtocol(_ context.Context, req *JoinRequest) error {
	if req.Protocol == peer.Protocol {
		return nil
	}
	hint := "upgrade this cluster's heads first, or start the new head with the version that they run"
	if req.Protocol < peer.Protocol {
		hint = "start the new head with the version that this cluster's heads run"
	}
	self := s.Info()
	return &trivet.Error{Op: "join", Hint: hint,
		Err: fmt.Errorf("%w: the new head runs %.40q, which speaks protocol %d; %s runs %s, which speaks %d",
			trivet.ErrInvalid, req.Version, req.Protocol, self.Head, self.Version, peer.Protocol)}
}

// maxJoinSkew is how far a new head's clock may be off.
const maxJoinSkew = time.Minute

func (s *Server) checkClock(_ context.Context, req *JoinRequest) error {
	skew := time.Until(req.Time).Round(time.Second)
	if skew.Abs() <= maxJoinSkew {
		return nil
	}
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	return &trivet.Error{Op: "join",
		Err: fmt.Errorf("%w: the new head's clock is %s %s that of %s", trivet.ErrInvalid, skew.Abs(), direction,
			s.Info().Head),
		Hint: "set both clocks, best by NTP, and start it again; the token is still valid"}
}

// checkAddress refuses an address that another member has, other than the one that is replaced.
func (s *Server) checkAddress(_ context.Context, req *JoinRequest) error {
	for h := range s.Records.Heads.AllShared() {
		if h.Status.Peer != req.Peer || h.Status.Join == req.ID || h.Status.State == trivet.HeadRemoved ||
			h.Spec.Remove ||
			h.Name == req.replaces {
			continue
		}
		return &trivet.Error{Op: "join", Err: fmt.Errorf("%w: %s is reached at %s", trivet.ErrExists, h.Name, req.Peer),
			Hint: fmt.Sprintf("if that head is lost, use a token of 'trivet head replace %s'; else set another "+
				"address of the new head by --advertise and --api", h.Name)}
	}
	return nil
}

// reachTimeout bounds the connection to a new head.
const reachTimeout = 3 * time.Second

// checkReachable connects to the new head at the address that the other heads will use: the holder of its key must
// respond.
func (s *Server) checkReachable(ctx context.Context, req *JoinRequest) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	cfg, err := auth.DialBackTLS(req.CSR)
	if err != nil {
		return err
	}
	u, err := url.Parse(req.Peer)
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{}, Config: cfg}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return &trivet.Error{Op: "join",
			Err: fmt.Errorf("%w: %s does not reach the new head at %s: %w", trivet.ErrInvalid, s.Info().Head,
				req.Peer, err),
			Hint: "start it with --advertise ADDRESS, one that the other heads reach, and allow TCP to it; " +
				"the token is still valid"}
	}
	return conn.Close()
}
