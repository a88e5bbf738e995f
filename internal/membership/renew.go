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
	"github.com/trivet-project/trivet/internal/store"
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
// removed. It is for the address by which the witness joined, and no other: the certificate of a head that was taken
// over must not become that of another one.
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
	if err := s.Records.verifyWitness(r.Context(), from.Name, req.Peer); err != nil {
		return nil, err
	}
	cert, err := s.Keys.CA.SignPeer(from, req.CSR, time.Now())
	if err != nil {
		return nil, err
	}
	return RenewResponse{cert}, nil
}

// verifyWitness returns why a witness gets no certificate for a URL. It reads the record by the quorum, so that a head
// that has not seen the removal of the witness yet renews nothing.
func (r *Records) verifyWitness(ctx context.Context, name, peer string) error {
	_, err := r.Store.Update(ctx, func(tx *store.Tx) error {
		h, err := r.Heads.In(tx).Get(name)
		switch {
		case err != nil:
			return err
		case h.Spec.RoleOrDefault() != trivet.RoleWitness || h.Spec.Remove || h.Status.State == trivet.HeadRemoved:
			return fmt.Errorf("renew: %w: %s is not a witness of this cluster, or is being removed",
				trivet.ErrForbidden, name)
		case hostPort(h.Status.Peer) != hostPort(peer):
			return &trivet.Error{Op: "renew", Kind: "Head", Name: name,
				Err: fmt.Errorf("%w: it joined as %s, and its certificate is for that address only, not for %.300s",
					trivet.ErrForbidden, h.Status.Peer, peer),
				Hint: "start it with the --advertise and --api that it had, or let it join again: trivet head replace " +
					name}
		}
		return nil
	})
	return err
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
