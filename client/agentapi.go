package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
)

// AgentAPI is the agents' door: what an agent in a machine and the heads say to each other. Each call asks every head
// once; retries are up to the agent. Agents are many, so they spread over the heads that they have reached, each in
// an order of its own, and return to that order when a head recovers.
type AgentAPI struct {
	c *Client
	// sign adds the agent's signature, by its estimate of the heads' time.
	sign func(req *http.Request, body []byte, machine string)
	// learn is called with a head's time.
	learn   func(head time.Time)
	machine atomic.Value // string; as the heads call it
}

// AgentAPI gives the agents' door. sign and learn are the agent's: see auth.SignRequest.
func (c *Client) AgentAPI(sign func(req *http.Request, body []byte, machine string), learn func(head time.Time)) *AgentAPI {
	once := *c
	once.retryTimeout, once.token = -1, ""
	d := &AgentAPI{c: &once, sign: sign, learn: learn}
	d.machine.Store("")
	return d
}

// idleSpread is within what time the agents that have lost a head turn to the others, where they have nothing to
// tell, and where they have.
const (
	idleSpread   = 3 * time.Second
	reportSpread = idleSpread / 10
)

// Hello uses the boot token and registers the agent's key.
func (d *AgentAPI) Hello(ctx context.Context, h trivet.Hello) (trivet.Grant, error) {
	d.c.heads.spreadBy(cmp.Or(h.Machine, h.MAC))
	return d.call(ctx, call{path: "/agent/v1/hello"}, h, "")
}

// Sync sends reports and a heartbeat, and waits for work.
func (d *AgentAPI) Sync(ctx context.Context, s trivet.Sync) (trivet.Grant, error) {
	d.c.heads.spreadBy(s.Machine)
	cl := call{path: "/agent/v1/sync", spread: idleSpread}
	if len(s.Reports) > 0 {
		cl.spread = reportSpread
	}
	if s.Wait > 0 {
		cl.timeout = tryTimeout + s.Wait.D()
	}
	return d.call(ctx, cl, s, s.Machine)
}

func (d *AgentAPI) call(ctx context.Context, cl call, what any, machine string) (trivet.Grant, error) {
	var g trivet.Grant
	body, err := json.Marshal(what)
	if err != nil {
		return g, fmt.Errorf("%s: %w: %w", cl.path, trivet.ErrInvalid, err)
	}
	cl.body = body
	if err := d.post(ctx, cl, machine, &g); err != nil {
		return trivet.Grant{}, err
	}
	d.machine.Store(g.Machine)
	d.c.Learn(g.Heads)
	return g, nil
}

// Logs appends a piece to the log of one attempt of an action.
func (d *AgentAPI) Logs(ctx context.Context, workflow, action string, try int, offset int64, piece []byte) error {
	q := url.Values{"workflow": {workflow}, "action": {action}, "attempt": {strconv.Itoa(try)}, "offset": {strconv.FormatInt(offset, 10)}}
	cl := call{path: "/agent/v1/logs", query: q, body: piece, header: http.Header{"Content-Type": {"application/octet-stream"}}}
	return d.post(ctx, cl, d.machine.Load().(string), nil)
}

// post signs and sends a request. If the agent's clock is off, it learns the head's time and retries once.
func (d *AgentAPI) post(ctx context.Context, cl call, machine string, out any) error {
	cl.method = http.MethodPost
	if machine != "" {
		cl.sign = func(req *http.Request, body []byte) { d.sign(req, body, machine) }
	}
	_, err := d.c.json(ctx, cl, out)
	var at *dated
	if errors.Is(err, trivet.ErrClockSkew) && errors.As(err, &at) {
		d.learn(at.date)
		_, err = d.c.json(ctx, cl, out)
	}
	var said *trivet.Problem
	if errors.Is(err, trivet.ErrUnauthenticated) && !errors.As(err, &said) { // strangers refuse nothing: a run goes on without heads
		err = fmt.Errorf("%w: %v", trivet.ErrUnavailable, err)
	}
	return err
}
