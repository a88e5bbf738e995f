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
)

// renewPath is the endpoint by which a witness renews its certificate.
const renewPath = "certificate"

// RenewRequest is a witness's request for a certificate of its new key. A full head signs its own.
type RenewRequest struct {
	CSR  []byte `json:"csr"`
	Peer string `json:"peer"` // URL where the other heads reach it
}

// RenewResponse is a member's certificate, in PEM.
type RenewResponse struct {
	Cert []byte `json:"cert"`
}

// renew signs the certificate of a witness, also of one whose certificate expired while it was down, unless it was
// removed.
func (s *Server) renew(r *http.Request, from auth.Peer, body []byte) (any, error) {
	var req RenewRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("renew: %w: %w", trivet.ErrInvalid, err)
	}
	if from.Role != auth.PeerWitness {
		return nil, fmt.Errorf("renew: %w: %s is not a witness", trivet.ErrForbidden, from.Name)
	}
	if err := validatePeer(req.Peer); err != nil {
		return nil, err
	}
	from.Host = hostOf(req.Peer)
	cert, err := s.Keys.CA.SignPeer(from, req.CSR, time.Now())
	if err != nil {
		return nil, err
	}
	return RenewResponse{cert}, s.Records.setPeer(r.Context(), from.Name, req.Peer)
}

// setPeer records the URL where a witness is reached. It refuses that of another head.
func (r *Records) setPeer(ctx context.Context, name, peer string) error {
	if h, err := r.Heads.GetShared(name); err == nil && h.Status.Peer == peer {
		return nil
	}
	for h := range r.Heads.AllShared() {
		same := func(url string) bool { return hostPort(url) == hostPort(peer) }
		urls := slices.Concat(h.Status.API, []string{h.Status.Peer})
		if h.Name != name && h.Status.State != trivet.HeadRemoved && slices.ContainsFunc(urls, same) {
			return &trivet.Error{Op: "renew", Err: fmt.Errorf("%w: %s is reached at %.300s", trivet.ErrExists, h.Name,
				peer),
				Hint: "set another address of the witness by --advertise and --api"}
		}
	}
	return r.Update(ctx, name, func(h *trivet.Head) bool {
		changed := h.Status.Peer != peer
		h.Status.Peer = peer
		return changed
	})
}

// renewTimeout bounds one request to renew a certificate.
const renewTimeout = 10 * time.Second

// requestCertificate creates a new key and requests its certificate from the full heads.
func (l *Local) requestCertificate(ctx context.Context) error {
	key, csr, err := newPeerKey()
	if err != nil {
		return err
	}
	err = fmt.Errorf("%w: no other head is known", trivet.ErrUnavailable)
	for _, p := range l.otherMembers() {
		resp, failed := l.callRenew(ctx, p.URL, RenewRequest{CSR: csr, Peer: l.addr.Peer})
		if failed == nil {
			return l.certs.replace(slices.Concat(resp.Cert, key))
		}
		err = errors.Join(err, fmt.Errorf("%s: %w", p.URL, failed))
	}
	return err
}

func (l *Local) callRenew(ctx context.Context, url string, req RenewRequest) (resp RenewResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	err = l.client.Call(ctx, url, renewPath, req, &resp)
	return resp, err
}
