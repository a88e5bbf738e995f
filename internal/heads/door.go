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
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/presence"
)

// Prefix is where the door's paths begin.
const Prefix = "/head/v1/"

// Protocol numbers how heads speak to each other. It is raised when an older head could no longer be a member beside this one.
const Protocol = 1

// maxBody bounds what a head asks, maxAnswer what it is answered, in bytes. The longest is what was heard of all agents.
const (
	maxBody   = 64 << 10
	maxAnswer = 32 << 20
)

// bodyTime bounds how long a head may take to send what it asks, and maxAsking how many at a time may ask for a place: these
// are not all known to be friends, and each makes the cluster say what is the latest.
const (
	bodyTime  = 5 * time.Second
	maxAsking = 16
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
	// Presence is needed where Fleet is.
	Presence *presence.Tracker
	Keys     *auth.Keys
	Blobs    *Blobs // nil: it holds none
	Logs     *Logs  // nil: it has none
	Log      *slog.Logger
}

// Door answers heads.
type Door struct {
	Config
	mux    *http.ServeMux
	asking chan struct{} // holds one for each who is asked for a place
}

// New makes the door.
func New(cfg Config) *Door {
	d := &Door{Config: cfg, mux: http.NewServeMux(), asking: make(chan struct{}, maxAsking)}
	d.mux.HandleFunc("POST "+Prefix+"greet", d.answered(d.peer, d.greet))
	if cfg.Fleet != nil {
		d.mux.HandleFunc("POST "+Prefix+"join", d.answered(anybody, d.join))
		d.mux.HandleFunc("POST "+Prefix+"again", d.answered(d.member, d.again))
		d.mux.HandleFunc("POST "+Prefix+"renew", d.answered(d.late, d.renew))
		d.mux.HandleFunc("POST "+Prefix+"seen", d.answered(d.member, d.seen))
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

// who proves who calls, and what answers what is asked, in JSON.
type (
	who  func(r *http.Request) (auth.Peer, error)
	what func(r *http.Request, from auth.Peer, body []byte) (any, error)
)

// answered makes a handler. Of one who is not let in, nothing is read.
func (d *Door) answered(let who, do what) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := d.answer(w, r, let, do)
		w.Header().Set("Content-Type", "application/json")
		if err != nil {
			level := slog.LevelWarn
			if again(err) { // it will ask until it is so
				level = slog.LevelDebug
			}
			d.Log.Log(r.Context(), level, "refused a head", "path", r.URL.Path, "from", r.RemoteAddr, "error", auth.Redact(err.Error()))
			status, problem := apitypes.NewProblem(err)
			w.WriteHeader(status)
			out = problem
		}
		_ = json.NewEncoder(w).Encode(out) // who went away asks again
	}
}

func (d *Door) answer(w http.ResponseWriter, r *http.Request, let who, do what) (any, error) {
	// From here on: HTTP/1 reads the rest of a request that is refused, too.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // where there is none to set, there is no connection to hold
	from, err := let(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return do(r, from, body)
}

// anybody lets everybody in.
func anybody(*http.Request) (auth.Peer, error) { return auth.Peer{}, nil }

// peer proves who calls, who may have been removed.
func (d *Door) peer(r *http.Request) (auth.Peer, error) { return d.Root.PeerOf(r.TLS, Connected(r)) }

// member proves who calls, and that it is a member.
func (d *Door) member(r *http.Request) (auth.Peer, error) {
	p, err := d.peer(r)
	if err == nil {
		err = d.counts(p)
	}
	return p, err
}

// late is member for one whose certificate may have ended while it was away.
func (d *Door) late(r *http.Request) (auth.Peer, error) {
	p, err := d.Root.ExpiredPeerOf(r.TLS, Connected(r))
	if err == nil {
		err = d.counts(p)
	}
	return p, err
}

// counts says, by the heads' records, whether somebody whose certificate was good is still a member.
func (d *Door) counts(p auth.Peer) error {
	h, err := d.Fleet.Heads.GetShared(p.Name)
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
