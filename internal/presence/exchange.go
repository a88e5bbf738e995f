package presence

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
)

// path is the endpoint by which heads exchange heartbeats, so that silence is judged by what all of them heard.
const path = "presence"

// Exchange exchanges heartbeats with the other full heads.
type Exchange struct {
	Tracker *Tracker
	Client  *peer.Client
	Peers   func() map[string]string // returns the URLs of the other full heads by name
	mu      sync.Mutex
	reached map[string]request // guarded by mu; by head: the next request
}

// Register adds the endpoint by which other full heads request this head's heartbeats. A witness serves no agents and
// must not read about machines.
func (e *Exchange) Register(s *peer.Server) {
	s.Register(peer.Endpoint{Path: path, Access: peer.FullMember, Handle: e.serve})
}

// serve answers while agents may use this head. From then on it is lost to the others, as to its agents.
func (e *Exchange) serve(_ *http.Request, from auth.Peer, body []byte) (any, error) {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("presence: %w: %w", trivet.ErrInvalid, err)
	}
	if err := e.Tracker.Listening(); err != nil {
		return nil, fmt.Errorf("presence: %w", err)
	}
	return e.Tracker.since(req, from.Name), nil
}

// Run runs the clock, and requests the other heads' heartbeats, several times within the silence from which on an
// agent is declared lost, until ctx ends.
func (e *Exchange) Run(ctx context.Context) {
	var clock sync.WaitGroup
	defer clock.Wait()
	clock.Go(func() { e.Tracker.clock.Run(ctx) })
	for ctx.Err() == nil {
		urls := e.Peers()
		e.Tracker.setPeers(urls)
		e.requestAll(ctx, urls)
		select {
		case <-ctx.Done():
		case <-time.After(e.Tracker.period()):
		}
	}
}

// requestAll requests what each head has learned. What a head does not answer within a period is requested again in
// the next one.
func (e *Exchange) requestAll(ctx context.Context, urls map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, e.Tracker.period())
	defer cancel()
	e.forget(urls)
	var requests sync.WaitGroup
	for name, url := range urls {
		requests.Go(func() {
			for more := true; more; {
				counted := e.Tracker.now()
				p := page{}
				if err := e.Client.Call(ctx, url, path, e.next(name), &p); err != nil {
					return
				}
				e.Tracker.merge(name, counted, p)
				more = e.received(name, p)
			}
		})
	}
	requests.Wait()
}

// next returns the next request to a head: the first is for all that it knows.
func (e *Exchange) next(head string) request {
	e.mu.Lock()
	defer e.mu.Unlock()
	if req, ok := e.reached[head]; ok {
		return req
	}
	return request{All: true}
}

// received records how far a head's response reached, and reports whether it has more.
func (e *Exchange) received(head string, p page) (more bool) {
	all := e.next(head).All
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reached == nil {
		e.reached = map[string]request{}
	}
	e.reached[head] = request{position: p.position, All: all && p.More}
	return p.More
}

// forget forgets heads that are no longer members.
func (e *Exchange) forget(urls map[string]string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.reached, func(head string, _ request) bool { return urls[head] == "" })
}
