package deadline

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/uptime"
)

// A head that starts, or that could not count for a while, requests from the other heads what they have counted: what
// they saved is up to an interval old, and heads that are restarted one after the other would lose that each time.

// peerPath is the endpoint by which heads request it.
const peerPath = "waits"

// peersTimeout bounds the requests to all heads together. What a head does not answer is taken from what it saved.
const peersTimeout = 2 * time.Second

// counted is what a head has counted: an encoded [uptime.Checkpoint].
type counted struct {
	Waits []byte `json:"waits"`
}

// Register adds the endpoint. running returns the controller of this head; nil: it does not run yet.
func Register(s *peer.Server, running func() *Controller) {
	s.Register(peer.Endpoint{Path: peerPath, Access: peer.FullMember,
		Handle: func(*http.Request, auth.Peer, []byte) (any, error) {
			c := running()
			if c == nil {
				return nil, fmt.Errorf("waits: %w: the head starts", trivet.ErrUnavailable)
			}
			return counted{c.counted().Encode()}, nil
		}})
}

// Peers are the other full heads.
type Peers struct {
	Client *peer.Client
	URLs   func() map[string]string // by name
}

// Counted implements [Others].
func (p *Peers) Counted(ctx context.Context) uptime.Checkpoint {
	ctx, cancel := context.WithTimeout(ctx, peersTimeout)
	defer cancel()
	var mu sync.Mutex
	var requests sync.WaitGroup
	all := uptime.Checkpoint{}
	for _, url := range p.URLs() {
		requests.Go(func() {
			var c counted
			if err := p.Client.Call(ctx, url, peerPath, struct{}{}, &c); err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			_ = all.Merge(c.Waits) // that of a later version is not understood
		})
	}
	requests.Wait()
	return all
}
