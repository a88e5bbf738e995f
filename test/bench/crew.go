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

// Crew is a process of its own with the agents of many machines, so that what they cost is told from what heads cost. Each is
// the real agent with a client and a TLS connection of its own. Their journals are in memory, as an installer's is; their
// actions do nothing, or wait. It is told what to do by net/rpc over its standard input and output (fleet.go).
type Crew struct {
	ctx      context.Context
	agents   sync.WaitGroup
	greeting chan struct{} // holds one for each agent on the way to its first grant

	mu    sync.Mutex
	looks Looks         // guarded by mu
	let   chan struct{} // closed when actions that wait may end
}

// Hire is machines whose agents shall start.
type Hire struct {
	Endpoints []string
	Trust     string
	Hands     []Hand
}

// Hand is a machine that boots.
type Hand struct{ Machine, MAC, Token string }

// Looks is what came of the agents so far.
type Looks struct {
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

// greetings is how many agents connect for the first time at once: machines that are powered on come one by one.
const greetings = 64

// waits is the action that ends only when it is let.
const waits = "wait"

// crewMain is the process.
func crewMain() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := &Crew{ctx: ctx, greeting: make(chan struct{}, greetings), let: make(chan struct{})}
	c.looks.On = map[string]int{}
	s := rpc.NewServer()
	if err := s.RegisterName("Crew", c); err != nil {
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
func (c *Crew) Start(h Hire, _ *struct{}) error {
	for i, hand := range h.Hands {
		heads := slices.Concat(h.Endpoints[i%len(h.Endpoints):], h.Endpoints[:i%len(h.Endpoints)]) // first the one that it boots from
		cl, err := client.New(client.Config{Endpoints: heads, Trust: h.Trust, UserAgent: "trivet-bench"})
		if err != nil {
			return err
		}
		c.agents.Go(func() {
			defer cl.Close()
			c.live(cl, hand)
		})
	}
	return nil
}

// Let lets the actions end that wait.
func (c *Crew) Let(struct{}, *struct{}) error {
	close(c.let)
	return nil
}

// Look tells how the agents do, without the lists.
func (c *Crew) Look(_ struct{}, out *Looks) error {
	err := c.All(struct{}{}, out)
	out.Connects, out.Boundaries = nil, nil
	return err
}

// All tells everything.
func (c *Crew) All(_ struct{}, out *Looks) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*out = c.looks
	out.On = maps.Clone(c.looks.On)
	return nil
}

// live is one agent's life.
func (c *Crew) live(cl *client.Client, hand Hand) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	clock := &installer.Clock{}
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	select {
	case c.greeting <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	_, _ = installer.Run(c.ctx, installer.Config{ // ends with ctx
		Door: &door{Door: cl.Door(sign, clock.Learn), crew: c, machine: hand.Machine}, Do: c.action(), Machine: hand.Machine, MAC: hand.MAC,
		Token: hand.Token, BootID: hand.Machine, Version: "bench", Key: base64.StdEncoding.EncodeToString(public),
		Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
}

// action does the actions of one agent.
func (c *Crew) action() func(ctx context.Context, at *action.Attempt) error {
	var ended time.Time
	return func(ctx context.Context, at *action.Attempt) error {
		defer func() { ended = time.Now() }()
		c.mu.Lock()
		if !ended.IsZero() {
			c.looks.Boundaries = append(c.looks.Boundaries, time.Since(ended))
		}
		if at.Action.Name == waits {
			c.looks.Waiting++
		}
		c.mu.Unlock()
		if at.Action.Name != waits {
			return nil
		}
		select {
		case <-c.let:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// door is the heads' door with an eye on the connections through it.
type door struct {
	installer.Door
	crew    *Crew
	machine string
	head    string // guarded by crew.mu; where it connected last
}

// Hello gives the place of the agent to the next one.
func (d *door) Hello(ctx context.Context, h trivet.Hello) (trivet.Grant, error) {
	g, err := d.Door.Hello(d.watched(ctx), h)
	if err == nil {
		<-d.crew.greeting
		d.crew.mu.Lock()
		d.crew.looks.Granted++
		d.crew.mu.Unlock()
	}
	return g, err
}

func (d *door) Sync(ctx context.Context, req trivet.Sync) (trivet.Grant, error) {
	return d.Door.Sync(d.watched(ctx), req)
}

func (d *door) Logs(ctx context.Context, workflow, action string, try int, offset int64, data []byte) error {
	return d.Door.Logs(d.watched(ctx), workflow, action, try, offset, data)
}

func (d *door) watched(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			d.connected(i.Conn.RemoteAddr())
		}
	}})
}

func (d *door) connected(to net.Addr) {
	host, _, _ := net.SplitHostPort(to.String())
	c := d.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.head != "" {
		c.looks.On[d.head]--
	}
	d.head = host
	c.looks.On[host]++
	c.looks.Connects = append(c.looks.Connects, Connect{d.machine, host, time.Now()})
}
