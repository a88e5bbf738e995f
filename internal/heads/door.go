// Package heads is what heads say to each other, and to a head that wants to join: a place in the cluster for a token, a
// greeting that tells who is there and who is a member, and a fresh certificate for a witness. It is served on the API's port;
// a member proves itself by its certificate.
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

// Protocol numbers how heads speak to each other. It is raised when an older head could no longer be a member beside this one.
const Protocol = 1

// maxBody bounds what a head asks, maxAnswer what it is answered, in bytes. The longest is what was heard of all agents.
const (
	maxBody   = 1 << 20
	maxAnswer = 32 << 20
)

// Members is the store's membership, as [cluster.Member] has it.
type Members interface {
	Add(ctx context.Context, url string) (id uint64, all []cluster.Peer, err error)
	Remove(ctx context.Context, id uint64) error
	Peers() []cluster.Peer
	ClusterID() string
	HasLeader() bool
}

// Config is what the door stands on. A witness has neither Fleet nor Keys, and answers greetings only.
type Config struct {
	Root    *auth.Root
	Members Members
	Self    func() Greeting // who this head is, now
	Fleet   *fleet.Fleet
	Keys    *auth.Keys
	Blobs   *Blobs // nil: it holds none
	Logs    *Logs  // nil: it has none
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
	d.mux.HandleFunc("POST "+Prefix+"greet", d.answered(d.greet))
	if cfg.Fleet != nil {
		d.mux.HandleFunc("POST "+Prefix+"join", d.answered(d.join))
		d.mux.HandleFunc("POST "+Prefix+"again", d.answered(d.again))
		d.mux.HandleFunc("POST "+Prefix+"renew", d.answered(d.renew))
		d.mux.HandleFunc("POST "+Prefix+"seen", d.answered(d.seen))
	}
	if cfg.Blobs != nil {
		d.blobRoutes()
	}
	if cfg.Logs != nil {
		d.logRoutes()
	}
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
			level := slog.LevelWarn
			if again(err) { // it will ask until it is so
				level = slog.LevelDebug
			}
			d.Log.Log(r.Context(), level, "refused a head", "path", r.URL.Path, "from", r.RemoteAddr, "error", auth.Redact(err.Error()))
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
	p, err := d.Root.PeerOf(r.TLS, Connected(r))
	if err == nil {
		err = d.counts(p)
	}
	return p, err
}

// counts says, by the heads' records, whether somebody whose certificate was good is still a member.
func (d *Door) counts(p auth.Peer) error {
	h, err := d.Fleet.Heads.Peek(p.Name)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && h.Status.State == trivet.HeadRemoved {
		return removed(p.Name)
	}
	return err
}

// HintRejoin is what to do with a head that is out.
const HintRejoin = "its data are of no use to the cluster any more; to let it in again as a new head: get a token by " +
	"'trivet head token' on a member, and start it with --rejoin --join URL --token TOKEN, which sets the old data aside"

func removed(name string) error {
	return &trivet.Error{Op: "greet", Kind: "Head", Name: name, Hint: HintRejoin,
		Err: fmt.Errorf("%w: it was removed from this cluster", trivet.ErrForbidden)}
}

// connected is the key of a connection's beginning in a request's context.
type connected struct{}

// WithConnected notes when a connection began, for http.Server.ConnContext: a certificate must be good then. A connection
// may outlive it.
func WithConnected(ctx context.Context) context.Context {
	return context.WithValue(ctx, connected{}, time.Now())
}

// Connected is when the request's connection began.
func Connected(r *http.Request) time.Time {
	if t, ok := r.Context().Value(connected{}).(time.Time); ok {
		return t
	}
	return time.Now()
}
