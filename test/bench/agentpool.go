package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/rpc"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer"
	"github.com/trivet-project/trivet/internal/auth"
)

// AgentPool is a process of its own with the agents of many machines, so that their cost is not counted as the
// heads'. Each is the real agent with a client and a TLS connection of its own. Their journals are in memory, as an
// installer's is; their actions do nothing, or wait. It is controlled by net/rpc over its standard input and output
// (fleet.go).
type AgentPool struct {
	ctx      context.Context
	agents   sync.WaitGroup
	starting chan struct{} // holds one for each agent that has no grant yet

	mu       sync.Mutex
	counters Counters      // guarded by mu
	release  chan struct{} // closed when actions that wait may end
}

// StartRequest is machines whose agents have to start.
type StartRequest struct {
	Endpoints []string
	Trust     string
	Machines  []BootedMachine
}

// BootedMachine is a machine that boots.
type BootedMachine struct{ Machine, MAC, Token string }

// Counters is the state of the agents.
type Counters struct {
	Granted    int            // agents whose hello was answered
	Waiting    int            // actions that wait
	On         map[string]int // agents by the head to which they connected last
	Connects   []Connect      // in their order
	Boundaries []time.Duration
}

// Connect is a connection of an agent to a head that is new to it.
type Connect struct {
	Machine, Head string
	At            time.Time
}

// maxStarting is how many agents connect for the first time at once: machines that are powered on do not boot all at
// once.
const maxStarting = 64

// waits is the action that ends only when it is released.
const waits = "wait"

// agentPoolMain is the process.
func agentPoolMain() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := &AgentPool{ctx: ctx, starting: make(chan struct{}, maxStarting), release: make(chan struct{})}
	c.counters.On = map[string]int{}
	s := rpc.NewServer()
	if err := s.RegisterName("AgentPool", c); err != nil {
		return err
	}
	s.ServeConn(both{os.Stdin, os.Stdout}) // until the other side closes it
	stop()
	c.agents.Wait()
	return nil
}

// both is a connection of two pipes.
type both struct {
	io.ReadCloser
	w io.WriteCloser
}

func (b both) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b both) Close() error                { return errors.Join(b.ReadCloser.Close(), b.w.Close()) }

// Start starts agents.
func (c *AgentPool) Start(h StartRequest, _ *struct{}) error {
	for i, m := range h.Machines {
		// first the one that it boots from
		heads := slices.Concat(h.Endpoints[i%len(h.Endpoints):], h.Endpoints[:i%len(h.Endpoints)])
		cl, err := client.New(client.Config{Endpoints: heads, Trust: h.Trust, UserAgent: "trivet-bench"})
		if err != nil {
			return err
		}
		c.agents.Go(func() {
			defer cl.Close()
			c.runAgent(cl, m)
		})
	}
	return nil
}

// Release ends the actions that wait.
func (c *AgentPool) Release(struct{}, *struct{}) error {
	close(c.release)
	return nil
}

// Count returns the counters without the lists.
func (c *AgentPool) Count(_ struct{}, out *Counters) error {
	err := c.All(struct{}{}, out)
	out.Connects, out.Boundaries = nil, nil
	return err
}

// All returns all counters.
func (c *AgentPool) All(_ struct{}, out *Counters) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*out = c.counters
	out.On = maps.Clone(c.counters.On)
	return nil
}

// runAgent runs one agent until the pool ends.
func (c *AgentPool) runAgent(cl *client.Client, m BootedMachine) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	clock := &installer.Clock{}
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	select {
	case c.starting <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	_, _ = installer.Run(c.ctx, installer.Config{ // ends with ctx
		Client: &watchedHead{Client: cl.AgentAPI(sign, clock.Learn), pool: c, machine: m.Machine}, Do: c.action(),
		Machine: m.Machine, MAC: m.MAC,
		Token: m.Token, BootID: m.Machine, Version: "bench", Key: base64.StdEncoding.EncodeToString(public),
		Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
}

// action returns the function that runs the actions of one agent.
func (c *AgentPool) action() func(ctx context.Context, at *action.Attempt) error {
	var ended time.Time
	return func(ctx context.Context, at *action.Attempt) error {
		defer func() { ended = time.Now() }()
		c.mu.Lock()
		if !ended.IsZero() {
			c.counters.Boundaries = append(c.counters.Boundaries, time.Since(ended))
		}
		if at.Action.Name == waits {
			c.counters.Waiting++
		}
		c.mu.Unlock()
		if at.Action.Name != waits {
			return nil
		}
		select {
		case <-c.release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchedHead is the heads' agent API; it observes the connections to them.
type watchedHead struct {
	installer.Client
	pool    *AgentPool
	machine string
	head    string // guarded by pool.mu; where it connected last
}

// Hello lets the next agent start.
func (d *watchedHead) Hello(ctx context.Context, h trivet.Hello) (trivet.Grant, error) {
	g, err := d.Client.Hello(d.watched(ctx), h)
	if err == nil {
		<-d.pool.starting
		d.pool.mu.Lock()
		d.pool.counters.Granted++
		d.pool.mu.Unlock()
	}
	return g, err
}

func (d *watchedHead) Sync(ctx context.Context, req trivet.Sync) (trivet.Grant, error) {
	return d.Client.Sync(d.watched(ctx), req)
}

func (d *watchedHead) Logs(ctx context.Context, workflow string, key trivet.LogKey, offset int64, data []byte) error {
	return d.Client.Logs(d.watched(ctx), workflow, key, offset, data)
}

func (d *watchedHead) watched(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			d.connected(i.Conn.RemoteAddr())
		}
	}})
}

func (d *watchedHead) connected(to net.Addr) {
	host, _, _ := net.SplitHostPort(to.String())
	c := d.pool
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.head != "" {
		c.counters.On[d.head]--
	}
	d.head = host
	c.counters.On[host]++
	c.counters.Connects = append(c.counters.Connects, Connect{d.machine, host, time.Now()})
}
