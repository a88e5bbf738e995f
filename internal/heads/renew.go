package heads

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// Renewal asks for a fresh certificate for a witness's new key. A full head makes its own.
type Renewal struct {
	CSR  []byte `json:"csr"`
	Peer string `json:"peer"` // where it is reached
}

// Certificate is a member's, in PEM.
type Certificate struct {
	Cert []byte `json:"cert"`
}

// renew signs for a witness, also for one that was away until its certificate had ended: what counts is that it was not
// removed.
func (d *Door) renew(r *http.Request, body []byte) (any, error) {
	p, err := d.Root.LatePeerOf(r.TLS, Connected(r))
	if err == nil {
		err = d.counts(p)
	}
	if err != nil {
		return nil, err
	}
	var ask Renewal
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fmt.Errorf("renew: %w: %w", trivet.ErrInvalid, err)
	}
	if p.Role != auth.PeerWitness {
		return nil, fmt.Errorf("renew: %w: %s is no witness", trivet.ErrForbidden, p.Name)
	}
	if err := validatePeer(ask.Peer); err != nil {
		return nil, err
	}
	if err := d.moved(r.Context(), p.Name, ask.Peer); err != nil {
		return nil, err
	}
	p.Host = hostOf(ask.Peer)
	cert, err := d.Keys.CA.SignPeer(p, ask.CSR, time.Now())
	return Certificate{cert}, err
}

// moved notes where a witness is reached.
func (d *Door) moved(ctx context.Context, name, peer string) error {
	if h, err := d.Fleet.Heads.Peek(name); err == nil && h.Status.Peer == peer {
		return nil
	}
	return d.Fleet.Head(ctx, name, func(h *trivet.Head) bool {
		changed := h.Status.Peer != peer
		h.Status.Peer = peer
		return changed
	})
}

func hostOf(peer string) string {
	u, err := url.Parse(peer)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
