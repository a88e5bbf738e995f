package presence

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
)

// path is the endpoint by which heads exchange heartbeats, so that silence is judged by what all of them heard.
const path = "presence"

// request asks for the heartbeats that a head learned of within a duration.
type request struct {
	Within trivet.Duration `json:"within"`
}

// Exchange exchanges heartbeats with the other full heads.
type Exchange struct {
	Tracker *Tracker
	Client  *peer.Client
	Peers   func() map[string]string // returns the URLs of the other full heads by name
	mu      sync.Mutex
	asked   map[string]time.Time // guarded by mu; by head: when the last request was sent that it answered
}

// Register adds the endpoint by which other full heads request this head's heartbeats. A witness serves no agents and
// must not read about machines.
func (e *Exchange) Register(s *peer.Server) {
	s.Register(peer.Endpoint{Path: path, Access: peer.FullMember, Handle: e.serve})
}

// serve answers while agents may use this head. From then on it is lost to the others, as to its agents.
func (e *Exchange) serve(_ *http.Request, _ auth.Peer, body []byte) (any, error) {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("presence: %w: %w", trivet.ErrInvalid, err)
	}
	if err := e.Tracker.Listening(); err != nil {
		return nil, fmt.Errorf("presence: %w", err)
	}
	return e.Tracker.recent(req.Within.D()), nil
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

// requestAll sends one request to each head. What a head does not answer within a period is requested again in the
// next one.
func (e *Exchange) requestAll(ctx context.Context, urls map[string]string) {
	period := e.Tracker.period()
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	var requests sync.WaitGroup
	for name, url := range urls {
		requests.Go(func() {
			sent, counted := time.Now(), e.Tracker.now()
			var heartbeats []Heartbeat
			req := request{Within: trivet.Duration(e.within(name, sent, period))}
			if err := e.Client.Call(ctx, url, path, req, &heartbeats); err == nil {
				e.Tracker.merge(name, counted, heartbeats)
				e.answered(name, sent)
			}
		})
	}
	requests.Wait()
}

// within returns the time since the last request that a head answered, with an overlap, since clocks run at different
// speeds; of a head that has answered none, all that is of use.
func (e *Exchange) within(head string, now time.Time, overlap time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, ok := e.asked[head]
	if !ok {
		return keep
	}
	return now.Sub(last) + overlap
}

func (e *Exchange) answered(head string, sent time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]time.Time{}
	}
	e.asked[head] = sent
}
