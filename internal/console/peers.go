package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
)

// The endpoints for other full heads. They concern the consoles that this head has open.
const (
	findPath  = "console/find"
	readPath  = "console/read"
	writePath = "console/write"
)

// request is about the console of a machine.
type request struct {
	Machine string `json:"machine"`
	Session string `json:"session,omitempty"`
	From    int64  `json:"from,omitempty"`
	Text    []byte `json:"text,omitempty"`
	Break   bool   `json:"break,omitempty"`
}

// Register adds the endpoints.
func (c *Consoles) Register(s *peer.Server) {
	for path, do := range map[string]func(context.Context, request) (any, error){
		findPath:  func(_ context.Context, req request) (any, error) { return c.serveFind(req), nil },
		readPath:  func(ctx context.Context, req request) (any, error) { return c.serveRead(ctx, req) },
		writePath: func(_ context.Context, req request) (any, error) { return struct{}{}, c.serveWrite(req) },
	} {
		s.Register(peer.Endpoint{Path: path, Access: peer.FullMember,
			Handle: func(r *http.Request, _ auth.Peer, body []byte) (any, error) {
				var req request
				if err := json.Unmarshal(body, &req); err != nil {
					return nil, fmt.Errorf("console: %w: %w", trivet.ErrInvalid, err)
				}
				return do(r.Context(), req)
			}})
	}
}

// serveFind returns the session of a machine that this head has open; one without a name: none.
func (c *Consoles) serveFind(req request) trivet.ConsoleSession {
	if s := c.local(req.Machine); s != nil {
		return s.describe()
	}
	return trivet.ConsoleSession{}
}

func (c *Consoles) serveRead(ctx context.Context, req request) (trivet.ConsoleText, error) {
	s, err := c.named(req)
	if err != nil {
		return trivet.ConsoleText{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	return s.text(ctx, req.From), nil
}

func (c *Consoles) serveWrite(req request) error {
	s, err := c.named(req)
	if err != nil {
		return err
	}
	return s.input(req.Text, req.Break)
}

// named returns the session that a request names.
func (c *Consoles) named(req request) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.open[req.Machine]; s != nil && s.id == req.Session {
		return s, nil
	}
	return nil, lost("it was closed")
}

func lost(why string) error {
	return fmt.Errorf("console session: %w: %s", trivet.ErrNotFound, why)
}

// find asks the other heads for the session of a machine; nil: none of those that can be reached has one.
func (c *Consoles) find(ctx context.Context, machine string) (*trivet.ConsoleSession, map[string]bool) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var mu sync.Mutex
	var found *trivet.ConsoleSession
	unreachable := map[string]bool{}
	var queries sync.WaitGroup
	for head, url := range c.Tables.PeerURLs(c.Self) {
		queries.Go(func() {
			var s trivet.ConsoleSession
			err := c.Client.Call(ctx, url, findPath, request{Machine: machine}, &s)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				unreachable[head] = true
			case s.Session != "":
				found = &s
			}
		})
	}
	queries.Wait()
	return found, unreachable
}

// relay sends a request to the head of a session.
func (c *Consoles) relay(ctx context.Context, head, path string, req request, out any) error {
	url := c.Tables.PeerURLs(c.Self)[head]
	if url == "" {
		return lost("its head is gone")
	}
	limited, cancel := context.WithTimeout(ctx, readWait+queryTimeout)
	defer cancel()
	err := c.Client.Call(limited, url, path, req, out)
	if p := (*trivet.Problem)(nil); err != nil && !errors.As(err, &p) && ctx.Err() == nil {
		return lost(fmt.Sprintf("its head %s cannot be reached: %v", head, err))
	}
	return err
}
