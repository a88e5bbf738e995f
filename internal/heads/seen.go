package heads

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/presence"
)

// Heads tell each other which agents they heard, so that silence is judged by what all of them know.

// seenAsk asks for what a head got to know of agents within a time.
type seenAsk struct {
	Within trivet.Duration `json:"within"`
}

func (d *Door) seen(_ *http.Request, _ auth.Peer, body []byte) (any, error) {
	var ask seenAsk
	if err := json.Unmarshal(body, &ask); err != nil {
		return nil, fmt.Errorf("seen: %w: %w", trivet.ErrInvalid, err)
	}
	return d.Presence.Recent(ask.Within.D()), nil
}

// Listen asks the other full heads which agents they heard, several times within the silence that makes an agent lost, until
// ctx ends.
func (c *Caller) Listen(ctx context.Context, f *fleet.Fleet, p *presence.Tracker) {
	for ctx.Err() == nil {
		period := f.AgentTimeout() / 8
		urls := f.PeerURLs(f.Self())
		names := make([]string, 0, len(urls))
		for name := range urls {
			names = append(names, name)
		}
		p.SetPeers(names, period)
		c.listenOnce(ctx, p, urls, period)
		select {
		case <-ctx.Done():
		case <-time.After(period):
		}
	}
}

// listenOnce asks each head once. What one does not answer within a period it is asked again.
func (c *Caller) listenOnce(ctx context.Context, p *presence.Tracker, urls map[string]string, period time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, period)
	defer cancel()
	var asking sync.WaitGroup
	for name, url := range urls {
		asking.Go(func() {
			asked := time.Now()
			var words []presence.Heartbeat
			ask := seenAsk{Within: trivet.Duration(asked.Sub(p.ReportedUntil(name)) + period)} // more than what is new: clocks tick apart
			if err := Call(ctx, c.client, url+Prefix+"seen", ask, &words); err == nil {
				p.Merge(name, asked, words)
			}
		})
	}
	asking.Wait()
}
