package presence

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
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
	// AgentTimeout returns the silence from which on an agent is declared lost.
	AgentTimeout func() time.Duration
}

// Register adds the endpoint by which other full heads request this head's heartbeats. A witness hears no agents, and must
// not learn of machines.
func (e *Exchange) Register(s *peer.Server) {
	s.Register(peer.Endpoint{Path: path, Access: peer.FullMember, Handle: e.serve})
}

func (e *Exchange) serve(_ *http.Request, _ auth.Peer, body []byte) (any, error) {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, fmt.Errorf("presence: %w: %w", trivet.ErrInvalid, err)
	}
	return e.Tracker.Recent(req.Within.D()), nil
}

// Run requests the other heads' heartbeats, several times within the silence from which on an agent is declared lost,
// until ctx ends.
func (e *Exchange) Run(ctx context.Context) {
	for ctx.Err() == nil {
		period, urls := e.AgentTimeout()/8, e.Peers()
		e.Tracker.SetPeers(slices.Collect(maps.Keys(urls)), period)
		e.requestAll(ctx, urls, period)
		select {
		case <-ctx.Done():
		case <-time.After(period):
		}
	}
}

// requestAll sends one request to each head. What a head does not answer within a period is requested again in the
// next one.
func (e *Exchange) requestAll(ctx context.Context, urls map[string]string, period time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	var requests sync.WaitGroup
	for name, url := range urls {
		requests.Go(func() {
			sent := time.Now()
			var heartbeats []Heartbeat
			overlap := period // clocks run at different speeds
			req := request{Within: trivet.Duration(sent.Sub(e.Tracker.ReportedUntil(name)) + overlap)}
			if err := e.Client.Call(ctx, url, path, req, &heartbeats); err == nil {
				e.Tracker.Merge(name, sent, heartbeats)
			}
		})
	}
	requests.Wait()
}
