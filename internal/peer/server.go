package peer

import (
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
	"github.com/trivet-project/trivet/internal/limit"
)

// Access is the set of callers that may use an endpoint.
type Access int

// The sets. Every caller but Unauthenticated has a certificate of the cluster's CA.
const (
	AnyHead         Access = iota // a head or witness, also one that was removed
	Member                        // a head or witness that is a member
	FullMember                    // a head that is a member, not a witness
	ExpiredMember                 // Member, whose certificate may have expired while it was down
	Unauthenticated               // any client
)

// Endpoint is one operation that other heads call.
type Endpoint struct {
	Path    string // below Prefix
	Access  Access
	MaxBody int64 // bound of a request's body, in bytes; 0: DefaultMaxBody
	// Handle returns the response. from is the zero Peer for unauthenticated callers.
	Handle func(r *http.Request, from auth.Peer, body []byte) (any, error)
}

// DefaultMaxBody bounds the body of a request, in bytes.
const DefaultMaxBody = 64 << 10

// maxUnknown bounds the bodies of all unauthenticated callers together, in bytes; one address has an eighth of it.
const maxUnknown = 8 << 20

// bodyTimeout bounds the time that a caller may take to send a request's body: callers may be unauthenticated.
const bodyTimeout = 5 * time.Second

// Membership reports which heads belong to the cluster, by the heads' records.
type Membership interface {
	// VerifyMember returns nil for a member, and ErrForbidden for a head that was removed or is not known.
	VerifyMember(head string) error
	// VerifyNotRemoved returns ErrForbidden for a head that is known to be removed. member is the ID of its member of
	// the store by its own account; empty: it does not know that yet.
	VerifyNotRemoved(head, member string) error
}

// Config is what a Server needs.
type Config struct {
	Root       *auth.Root
	Info       func() Info // what this head reports of itself
	Membership Membership  // nil on a witness, which has no records and serves AnyHead only
	Log        *slog.Logger
	// Incarnation returns that of this head's cluster, and Fence is called with a later one. Both may be nil.
	Incarnation func() string
	Fence       func(incarnation string)
}

// Server serves the endpoints for other heads. Endpoints are registered before it serves.
type Server struct {
	Config
	mux     *http.ServeMux
	sources Sources
	unknown *limit.Pool // bytes of bodies of unauthenticated callers
}

// NewServer returns a server that responds to pings.
func NewServer(cfg Config) *Server {
	s := &Server{Config: cfg, mux: http.NewServeMux(), unknown: limit.NewPool(maxUnknown, maxUnknown/8)}
	s.Register(Endpoint{Path: pingPath, Access: AnyHead, Handle: s.ping})
	return s
}

// Register adds an endpoint.
func (s *Server) Register(e Endpoint) {
	if e.MaxBody == 0 {
		e.MaxBody = DefaultMaxBody
	}
	s.mux.HandleFunc("POST "+Prefix+e.Path, func(w http.ResponseWriter, r *http.Request) { s.serve(&e, w, r) })
}

// RegisterHandler adds a handler for GET requests by callers of this access. The path is a pattern of http.ServeMux.
func (s *Server) RegisterHandler(path string, access Access, h http.Handler) {
	s.mux.HandleFunc("GET "+Prefix+path, func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.authorize(r, access); err != nil {
			s.logRefused(r, err)
			http.Error(w, "members only", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) serve(e *Endpoint, w http.ResponseWriter, r *http.Request) {
	out, err := s.handle(e, w, r)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		s.logRefused(r, err)
		status, problem := apitypes.NewProblem(err)
		w.WriteHeader(status)
		out = problem
	}
	_ = json.NewEncoder(w).Encode(out) // a caller that has gone calls again
}

// handle reads the body only after the caller was authorized.
func (s *Server) handle(e *Endpoint, w http.ResponseWriter, r *http.Request) (any, error) {
	// The deadline covers a refused request too: HTTP/1 reads the rest of its body.
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTimeout)) // fails only where there is no connection to bound
	from, err := s.authorize(r, e.Access)
	if err == nil && e.Access != Unauthenticated {
		err = s.checkIncarnation(r, from)
	}
	if err != nil {
		return nil, err
	}
	if e.Access == Unauthenticated {
		giveBack := s.unknown.Take(limit.Of(r.Context()).Address(), e.MaxBody)
		if giveBack == nil {
			return nil, fmt.Errorf("%w: too many requests of callers that this head does not know", trivet.ErrUnavailable)
		}
		defer giveBack()
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.MaxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return e.Handle(r, from, body)
}

// authorize returns the identity of the caller, or why it may not use an endpoint of this access.
func (s *Server) authorize(r *http.Request, access Access) (p auth.Peer, err error) {
	switch access {
	case Unauthenticated:
		return p, nil
	case ExpiredMember:
		p, err = s.Root.ExpiredPeerOf(r.TLS, ConnTime(r))
	default:
		p, err = s.Root.PeerOf(r.TLS, ConnTime(r))
	}
	if err == nil {
		err = s.sources.Verify(r, p)
	}
	if err == nil {
		limit.Of(r.Context()).Recognise()
	}
	if err != nil || access == AnyHead {
		return p, err
	}
	if s.Membership == nil {
		return p, fmt.Errorf("%w: this head has no records", trivet.ErrForbidden)
	}
	if err := s.Membership.VerifyMember(p.Name); err != nil {
		return p, err
	}
	if access == FullMember && p.Role != auth.PeerHead {
		return p, fmt.Errorf("%w: %s is a %s, and only full heads have access", trivet.ErrForbidden, p.Name, p.Role)
	}
	return p, nil
}

// logRefused logs a refused request. One that the caller will retry is not worth a warning.
func (s *Server) logRefused(r *http.Request, err error) {
	level := slog.LevelWarn
	if Retryable(err) {
		level = slog.LevelDebug
	}
	s.Log.Log(r.Context(), level, "refused a request of a head", "path", r.URL.Path, "from", r.RemoteAddr,
		"error", auth.Redact(err.Error()))
}

// ping responds with this head's information. A removed head gets ErrForbidden, which is final.
func (s *Server) ping(_ *http.Request, from auth.Peer, body []byte) (any, error) {
	var info Info
	if err := json.Unmarshal(body, &info); err != nil {
		return nil, fmt.Errorf("ping: %w: %w", trivet.ErrInvalid, err)
	}
	if s.Membership != nil {
		if err := s.Membership.VerifyNotRemoved(from.Name, info.Member); err != nil {
			return nil, err
		}
	}
	return s.Info(), nil
}
