// Package heads is what heads say to each other, and to a head that wants to join: a place in the cluster for a token, and a
// fresh certificate for a member. It is served on the API's port; a member proves itself by its certificate.
package heads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/wire"
)

// Prefix is where the door's paths begin.
const Prefix = "/head/v1/"

// maxBody bounds what a head says, in bytes.
const maxBody = 1 << 20

// Members is the store's membership, as [cluster.Member] has it.
type Members interface {
	Add(ctx context.Context, url string) (id uint64, all []cluster.Peer, err error)
	Peers() []cluster.Peer
	ClusterID() string
}

// Config is what the door stands on.
type Config struct {
	Fleet   *fleet.Fleet
	Keys    *auth.Keys
	Members Members
	Log     *slog.Logger
}

// Door answers heads.
type Door struct {
	Config
	mux *http.ServeMux
}

// New makes the door.
func New(cfg Config) *Door {
	d := &Door{Config: cfg, mux: http.NewServeMux()}
	d.mux.HandleFunc("POST "+Prefix+"join", d.answered(d.join))
	d.mux.HandleFunc("POST "+Prefix+"renew", d.answered(d.renew))
	return d
}

func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// answered makes a handler of a function of JSON.
func (d *Door) answered(do func(r *http.Request, body []byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		var out any
		if err == nil {
			out, err = do(r, body)
		} else {
			err = fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		}
		if err != nil {
			d.Log.Warn("refused a head", "path", r.URL.Path, "from", r.RemoteAddr, "error", auth.Redact(err.Error()))
			status, problem := wire.NewProblem(err)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(problem) // who went away asks again
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	}
}

// member proves who calls.
func (d *Door) member(r *http.Request) (auth.Peer, error) {
	p, err := d.Keys.CA.PeerOf(r.TLS, time.Now())
	if err != nil {
		return p, err
	}
	h, err := d.Fleet.Heads.Peek(p.Name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && h.Status.State == trivet.HeadRemoved {
		return p, fmt.Errorf("%w: %s was removed from this cluster", trivet.ErrForbidden, p.Name)
	}
	return p, err
}

// Renewal asks for a fresh certificate for a member's key.
type Renewal struct {
	CSR []byte `json:"csr"`
}

func (d *Door) renew(r *http.Request, body []byte) (any, error) {
	p, err := d.member(r)
	if err != nil {
		return nil, err
	}
	var ask Renewal
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fmt.Errorf("renew: %w: %w", trivet.ErrInvalid, err)
	}
	cert, err := d.Keys.CA.SignPeer(p, ask.CSR, time.Now())
	return Certificate{cert}, err
}

// Certificate is a member's, in PEM.
type Certificate struct {
	Cert []byte `json:"cert"`
}
