package heads

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/wire"
)

// Ask is what a head says that wants to join.
type Ask struct {
	Token string `json:"token"`
	ID    string `json:"id"`   // random, the same when it asks again
	Peer  string `json:"peer"` // https://host:port where members will reach it
	CSR   []byte `json:"csr"`
}

// Place is what it gets: all that it needs to start its member. The keys are for a voter only.
type Place struct {
	Name    string         `json:"name"`
	Role    string         `json:"role"`
	Cluster string         `json:"cluster"`
	Peers   []cluster.Peer `json:"peers"`
	CA      []byte         `json:"ca"`
	Cert    []byte         `json:"cert"`
	Keys    auth.Bundle    `json:"keys,omitempty"`
}

func (d *Door) join(r *http.Request, body []byte) (any, error) {
	var ask Ask
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fmt.Errorf("join: %w: %w", trivet.ErrInvalid, err)
	}
	if err := ask.validate(); err != nil {
		return nil, err
	}
	h, err := d.Fleet.Join(r.Context(), fleet.Joining{Token: ask.Token, ID: ask.ID, Peer: ask.Peer})
	if err != nil {
		return nil, err
	}
	peers := d.Members.Peers()
	if h.Status.Member == "" {
		if peers, err = d.add(r.Context(), h); err != nil {
			return nil, err
		}
	}
	role := auth.PeerHead
	if h.Spec.Role == trivet.RoleWitness {
		role = auth.PeerWitness
	}
	cert, err := d.Keys.CA.SignPeer(auth.Peer{Name: h.Name, Role: role}, ask.CSR, time.Now())
	if err != nil {
		return nil, err
	}
	place := Place{Name: h.Name, Role: h.Spec.Role, Cluster: d.Members.ClusterID(), Peers: peers, CA: d.Keys.CA.PEM(), Cert: cert}
	if role == auth.PeerHead {
		place.Keys = d.Keys.Bundle()
	}
	d.Log.Info("a head joins", "head", h.Name, "role", h.Spec.Role, "peer", ask.Peer, "from", r.RemoteAddr)
	return place, nil
}

// add makes room for the head's member, and notes which one it is.
func (d *Door) add(ctx context.Context, h *trivet.Head) ([]cluster.Peer, error) {
	id, peers, err := d.Members.Add(ctx, h.Status.Peer)
	if err != nil {
		return nil, err
	}
	return peers, d.Fleet.Head(ctx, h.Name, func(h *trivet.Head) bool {
		h.Status.Member = fmt.Sprintf("%016x", id)
		return true
	})
}

func (a *Ask) validate() error {
	u, err := url.Parse(a.Peer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || len(a.Peer) > 300 {
		return &trivet.FieldError{Field: "peer", Problem: fmt.Sprintf("%.300q is not https://host:port", a.Peer)}
	}
	if len(a.ID) < 16 || len(a.ID) > 64 {
		return &trivet.FieldError{Field: "id", Problem: "must have 16 to 64 characters"}
	}
	return nil
}

// Token is what an operator carries from a head to a new one: how to know the cluster, and the right to join it once.
type Token struct {
	Pin    string      // of the cluster's CA
	Secret auth.Secret // the token itself
}

// ParseToken reads what [wire.JoinText] wrote.
func ParseToken(text string) (Token, error) {
	pin, secret, ok := strings.Cut(strings.TrimSpace(text), ".")
	if !ok || auth.ValidatePin(pin) != nil {
		return Token{}, fmt.Errorf("join token: %w: not of the form sha256:<pin>.trivet_<id>_<secret>", trivet.ErrInvalid)
	}
	if _, err := auth.ParseToken(secret); err != nil {
		return Token{}, err
	}
	return Token{pin, auth.Secret(secret)}, nil
}

// Join asks heads, in turn, for a place until one gives it, ctx ends, or one refuses for good.
func Join(ctx context.Context, urls []string, t Token, ask Ask, say func(string)) (*Place, error) {
	tls, err := auth.ClientTLS(t.Pin)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	ask.Token = t.Secret.Reveal()
	for {
		var last error
		for _, u := range urls {
			var place Place
			err := Call(ctx, client, u+Prefix+"join", ask, &place)
			switch {
			case err == nil:
				return &place, nil
			case ctx.Err() != nil:
				return nil, errors.Join(last, err)
			case !errors.Is(err, trivet.ErrUnavailable) && !errors.Is(err, trivet.ErrConflict):
				return nil, err
			}
			last = err
		}
		say(fmt.Sprintf("no place yet: %v; asking again", last))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, last
		}
	}
}

// Call sends JSON to a head and reads its answer. What cannot be reached is ErrUnavailable.
func Call(ctx context.Context, client *http.Client, url string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, trivet.ErrUnauthenticated):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if resp.StatusCode != http.StatusOK {
		var p wire.Problem
		if json.Unmarshal(text, &p) != nil || p.Code == "" {
			return wire.Foreign(resp.StatusCode, string(text))
		}
		return &p
	}
	return json.Unmarshal(text, out)
}
