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

// Door is the agents' door: what an agent in a machine and the heads say to each other. Each call asks every head once;
// when to try again is the agent's to say. Agents are many, so they spread over the heads that they have reached, each in an
// order of its own, and come back to it when a head does.
type Door struct {
	c *Client
	// sign proves a request of a machine by the agent's key and its idea of the heads' time.
	sign func(req *http.Request, body []byte, machine string)
	// learn takes a head's time.
	learn   func(head time.Time)
	machine atomic.Value // string; as the heads call it
}

// Door gives the agents' door. sign and learn are the agent's: see auth.SignRequest.
func (c *Client) Door(sign func(req *http.Request, body []byte, machine string), learn func(head time.Time)) *Door {
	once := *c
	once.patience, once.token = -1, ""
	d := &Door{c: &once, sign: sign, learn: learn}
	d.machine.Store("")
	return d
}

// calm is within what time the agents that have lost a head turn to the others, where they have nothing to tell, and where
// they have.
const (
	calm  = 3 * time.Second
	hasty = calm / 10
)

// Hello spends the boot token and registers the agent's key.
func (d *Door) Hello(ctx context.Context, h trivet.Hello) (trivet.Grant, error) {
	d.c.heads.spreadBy(cmp.Or(h.Machine, h.MAC))
	return d.say(ctx, call{path: "/agent/v1/hello"}, h, "")
}

// Sync reports, beats and waits for work.
func (d *Door) Sync(ctx context.Context, s trivet.Sync) (trivet.Grant, error) {
	d.c.heads.spreadBy(s.Machine)
	cl := call{path: "/agent/v1/sync", calm: calm}
	if len(s.Reports) > 0 {
		cl.calm = hasty
	}
	if s.Wait > 0 {
		cl.timeout = tryTimeout + s.Wait.D()
	}
	return d.say(ctx, cl, s, s.Machine)
}

func (d *Door) say(ctx context.Context, cl call, what any, machine string) (trivet.Grant, error) {
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

// Logs appends a piece to the log of one try of an action.
func (d *Door) Logs(ctx context.Context, workflow, action string, try int, offset int64, piece []byte) error {
	q := url.Values{"workflow": {workflow}, "action": {action}, "attempt": {strconv.Itoa(try)}, "offset": {strconv.FormatInt(offset, 10)}}
	cl := call{path: "/agent/v1/logs", query: q, body: piece, header: http.Header{"Content-Type": {"application/octet-stream"}}}
	return d.post(ctx, cl, d.machine.Load().(string), nil)
}

// post signs and sends. Where the agent's clock is off it learns the head's time and tries once more.
func (d *Door) post(ctx context.Context, cl call, machine string, out any) error {
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
