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

// AgentAPI is the agent API: the calls of an agent in a machine to the heads. Each call tries every head once; retries
// are up to the agent. Agents are many, so they spread over the heads that they have reached, each in an order of its
// own, and return to that order when a head recovers.
type AgentAPI struct {
	c *Client
	// sign adds the agent's signature, by its estimate of the heads' time.
	sign func(req *http.Request, body []byte, machine string)
	// learn is called with a head's time.
	learn    func(head time.Time)
	machine  atomic.Value // string; as the heads call it
	interval atomic.Int64 // time.Duration; between heartbeats, as the heads request it; 0: unknown
}

// AgentAPI returns the agent API. sign and learn are the agent's: see auth.SignRequest.
func (c *Client) AgentAPI(
	sign func(req *http.Request, body []byte, machine string), learn func(head time.Time),
) *AgentAPI {
	once := *c
	once.retryTimeout, once.token, once.http = -1, "", c.agents
	a := &AgentAPI{c: &once, sign: sign, learn: learn}
	a.machine.Store("")
	return a
}

// idleSpread is the time within which agents that have lost a head move to the others if they have nothing to
// report; reportSpread if they have.
const (
	idleSpread   = 3 * time.Second
	reportSpread = idleSpread / 10
)

// Hello uses the boot token and registers the agent's key.
func (a *AgentAPI) Hello(ctx context.Context, h trivet.Hello) (trivet.Grant, error) {
	a.c.heads.spreadBy(cmp.Or(h.Machine, h.MAC))
	return a.call(ctx, call{path: "/agent/v1/hello"}, h, h.Machine)
}

// Sync sends reports and a heartbeat, and waits for work.
func (a *AgentAPI) Sync(ctx context.Context, s trivet.Sync) (trivet.Grant, error) {
	a.c.heads.spreadBy(s.Machine)
	cl := call{path: "/agent/v1/sync", spread: idleSpread, begin: writeResponseTimeout}
	if interval := time.Duration(a.interval.Load()); interval > 0 { // an agent must find another head within a few
		cl.spread = min(cl.spread, interval)
		cl.begin = min(cl.begin, max(2*interval, time.Second))
		s.Wait = min(s.Wait, trivet.Duration(2*interval)) // no head waits longer; one that is stopped is left then
	}
	if len(s.Reports) > 0 {
		cl.spread = min(cl.spread, reportSpread)
	}
	if s.Wait > 0 {
		cl.begin += s.Wait.D()
		cl.timeout = tryTimeout + s.Wait.D()
	}
	return a.call(ctx, cl, s, s.Machine)
}

func (a *AgentAPI) call(ctx context.Context, cl call, what any, machine string) (trivet.Grant, error) {
	var g trivet.Grant
	body, err := json.Marshal(what)
	if err != nil {
		return g, fmt.Errorf("%s: %w: %w", cl.path, trivet.ErrInvalid, err)
	}
	cl.body = body
	if err := a.post(ctx, cl, machine, &g); err != nil {
		return trivet.Grant{}, err
	}
	a.machine.Store(g.Machine)
	a.interval.Store(int64(g.Interval))
	a.c.Learn(g.Heads)
	a.c.Follow(g.Trust)
	return g, nil
}

// Logs appends a piece to the log of one attempt of an action.
func (a *AgentAPI) Logs(ctx context.Context, workflow string, key trivet.LogKey, offset int64, piece []byte) error {
	cl := call{path: "/agent/v1/logs", body: piece, header: http.Header{"Content-Type": {"application/octet-stream"}}}
	cl.query = url.Values{
		"workflow": {workflow}, "action": {key.Action}, "epoch": {strconv.FormatInt(key.Epoch, 10)},
		"attempt": {strconv.Itoa(key.Attempt)}, "offset": {strconv.FormatInt(offset, 10)},
	}
	return a.post(ctx, cl, a.machine.Load().(string), nil)
}

// post signs and sends a request. If the agent's clock is off, it learns the head's time and retries once.
func (a *AgentAPI) post(ctx context.Context, cl call, machine string, out any) error {
	cl.method = http.MethodPost
	if machine != "" {
		cl.sign = func(req *http.Request, body []byte) { a.sign(req, body, machine) }
	}
	_, err := a.c.json(ctx, cl, out)
	var at *dated
	if errors.Is(err, trivet.ErrClockSkew) && errors.As(err, &at) {
		a.learn(at.date)
		_, err = a.c.json(ctx, cl, out)
	}
	var p *trivet.Problem
	if errors.Is(err, trivet.ErrUnauthenticated) && !errors.As(err, &p) {
		// The server is not a head of the cluster, so it cannot refuse the agent: the run continues without heads.
		err = fmt.Errorf("%w: %v", trivet.ErrUnavailable, err)
	}
	return err
}
