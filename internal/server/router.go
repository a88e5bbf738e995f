package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/peer"
)

// router passes the requests to the API's port to their handlers: those of the store's members, of other heads, and
// of clients. It serves from before the identity of the head is known, so that the head can be reached while it
// joins, until its member has stopped.
type router struct {
	log     *slog.Logger
	root    func() *auth.Root // returns nil before it is known
	links   *peer.Links
	exits   *peer.Exits
	sources peer.Sources
	members atomic.Pointer[http.Handler]
	peers   atomic.Pointer[http.Handler]
	api     atomic.Pointer[http.Handler]
	// sender verifies the sender of a raft message, by its certificate and the message; nil: not known yet.
	sender  atomic.Pointer[func(p auth.Peer, r *http.Request) error]
	closing atomic.Bool // clients are to use another connection for the next request

	mu      sync.Mutex
	serving int           // requests of clients; guarded by mu
	closed  chan struct{} // created when clients are refused, closed when no request runs any more; guarded by mu
}

func (t *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case cluster.IsPeerPath(r.URL.Path) && len(r.TLS.PeerCertificates) > 0:
		t.serveMember(w, r)
		return
	case strings.HasPrefix(r.URL.Path, peer.Prefix):
		pass(&t.peers, w, r)
		return
	}
	if t.closing.Load() {
		w.Header().Set("Connection", "close")
	}
	if !t.enter() {
		refuse(w, fmt.Errorf("%w: this head is stopping", trivet.ErrUnavailable))
		return
	}
	defer t.exit()
	pass(&t.api, w, r)
}

// serveMember serves the store's members, until they are removed, and witnesses from their own address only: a valid
// certificate alone would let its holder send messages in the name of other members. All others get a 401: a member
// that got a 403 or 410 would conclude that it was removed. One that was removed learns it from its ping.
func (t *router) serveMember(w http.ResponseWriter, r *http.Request) {
	root := t.root()
	if root == nil {
		pass(&t.members, w, r)
		return
	}
	p, err := root.PeerOf(r.TLS, peer.ConnTime(r))
	if err == nil {
		err = t.sources.Verify(r, p)
	}
	if sender := t.sender.Load(); err == nil && sender != nil {
		err = (*sender)(p, r)
	}
	if err != nil {
		t.log.Debug("refused a request of a member", "from", r.RemoteAddr, "error", err)
		refuse(w, err)
		return
	}
	limit.Of(r.Context()).Recognise()
	t.links.Add(r, p.Name)
	t.exits.Add(r, p.Name)
	pass(&t.members, w, r)
}

// pass passes a request to a handler, if that is set yet.
func pass(to *atomic.Pointer[http.Handler], w http.ResponseWriter, r *http.Request) {
	if h := to.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	refuse(w, fmt.Errorf("%w: this head is starting", trivet.ErrUnavailable))
}

func refuse(w http.ResponseWriter, err error) {
	status, problem := apitypes.NewProblem(err)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem) // a client that has gone needs no response
}

func (t *router) set(which *atomic.Pointer[http.Handler], h http.Handler) { which.Store(&h) }

func (t *router) setSender(verify func(auth.Peer, *http.Request) error) { t.sender.Store(&verify) }

// enter reports whether a request may be served. exit must follow.
func (t *router) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return false
	}
	t.serving++
	return true
}

func (t *router) exit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serving--
	t.closeIfIdle()
}

// closeIfIdle ends the wait of drain where that has begun and no request runs. t.mu is held.
func (t *router) closeIfIdle() {
	if t.closed != nil && t.serving == 0 {
		close(t.closed)
	}
}

// drain refuses new requests and waits for those that run, until ctx ends. It is called once.
func (t *router) drain(ctx context.Context) {
	t.closing.Store(true)
	t.mu.Lock()
	t.closed = make(chan struct{})
	idle := t.closed
	t.closeIfIdle()
	t.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
