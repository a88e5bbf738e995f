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
	"github.com/trivet-project/trivet/internal/heads"
)

// front is what stands behind the API's port: the other members of the store, other heads, and everybody else. It serves
// from before the head knows who it is, so that it can be seen while it joins, until after its member has ended.
type front struct {
	log     *slog.Logger
	root    atomic.Pointer[auth.Root]
	peers   atomic.Pointer[http.Handler]
	heads   atomic.Pointer[http.Handler]
	api     atomic.Pointer[http.Handler]
	out     atomic.Pointer[func(head string) bool] // whether a head was removed; nil: this one has no records
	leaving atomic.Bool                            // everybody else is told to come by another connection next time

	mu      sync.Mutex
	serving int           // requests of everybody else; guarded by mu
	closed  chan struct{} // made when everybody else is refused, closed when nobody is served any more; guarded by mu
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case cluster.IsPeerPath(r.URL.Path) && len(r.TLS.PeerCertificates) > 0:
		f.servePeer(w, r)
		return
	case strings.HasPrefix(r.URL.Path, heads.Prefix):
		pass(&f.heads, w, r)
		return
	}
	if f.leaving.Load() {
		w.Header().Set("Connection", "close")
	}
	if !f.enter() {
		refuse(w, fmt.Errorf("%w: this head is stopping", trivet.ErrUnavailable))
		return
	}
	defer f.exit()
	pass(&f.api, w, r)
}

// servePeer lets members in, while they are: who has a good certificate could say that a message is another one's. All others
// get a 401: a member that got a 403 or 410 would take itself for removed. One that was is told when it greets.
func (f *front) servePeer(w http.ResponseWriter, r *http.Request) {
	root := f.root.Load()
	if root == nil {
		pass(&f.peers, w, r)
		return
	}
	p, err := root.PeerOf(r.TLS, heads.Connected(r))
	if out := f.out.Load(); err == nil && out != nil && (*out)(p.Name) {
		err = fmt.Errorf("%w: %s was removed from this cluster", trivet.ErrUnauthenticated, p.Name)
	}
	if err != nil {
		f.log.Debug("refused a member's call", "from", r.RemoteAddr, "error", err)
		refuse(w, err)
		return
	}
	pass(&f.peers, w, r)
}

// pass gives a request to a handler, if that is there yet.
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
	_ = json.NewEncoder(w).Encode(problem) // who went away needs no answer
}

func (f *front) set(which *atomic.Pointer[http.Handler], h http.Handler) { which.Store(&h) }

// enter says whether a request may be served; exit is its end.
func (f *front) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		return false
	}
	f.serving++
	return true
}

func (f *front) exit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serving--
	f.tellIdle()
}

// tellIdle ends the wait of drain, where that has begun and nobody is served.
func (f *front) tellIdle() {
	if f.closed != nil && f.serving == 0 {
		close(f.closed)
	}
}

// drain takes no more requests and waits for those that are served, until ctx ends. It is called once.
func (f *front) drain(ctx context.Context) {
	f.leaving.Store(true)
	f.mu.Lock()
	f.closed = make(chan struct{})
	idle := f.closed
	f.tellIdle()
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
