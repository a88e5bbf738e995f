package heads

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
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
func (d *Door) renew(r *http.Request, p auth.Peer, body []byte) (any, error) {
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
	p.Host = hostOf(ask.Peer)
	cert, err := d.Keys.CA.SignPeer(p, ask.CSR, time.Now())
	if err != nil {
		return nil, err
	}
	return Certificate{cert}, d.moved(r.Context(), p.Name, ask.Peer)
}

// moved notes where a witness is reached, which must not be where another head is.
func (d *Door) moved(ctx context.Context, name, peer string) error {
	if h, err := d.Fleet.Heads.GetShared(name); err == nil && h.Status.Peer == peer {
		return nil
	}
	for h := range d.Fleet.Heads.AllShared() {
		same := func(url string) bool { return addressOf(url) == addressOf(peer) }
		if h.Name != name && h.Status.State != trivet.HeadRemoved && slices.ContainsFunc(slices.Concat(h.Status.API, []string{h.Status.Peer}), same) {
			return &trivet.Error{Op: "renew", Err: fmt.Errorf("%w: %s is reached at %.300s", trivet.ErrExists, h.Name, peer),
				Hint: "give the witness an address of its own by --advertise and --api"}
		}
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

// addressOf is the host and port of a URL, the same however they are written.
func addressOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	host := strings.ToLower(strings.TrimRight(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().String()
	}
	return net.JoinHostPort(host, u.Port())
}
