package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/auth"
)

// fleet is machines of a head, each with the real agent as a goroutine of this program and its own TLS connection. Their
// journals are in memory, as an installer's is; their actions do nothing.
type fleet struct {
	*head
	ctx    context.Context
	stop   context.CancelFunc
	agents sync.WaitGroup
	names  []string

	mu         sync.Mutex
	boundaries []time.Duration // guarded by mu; between the end of an action and the begin of the next
}

// startFleet writes down machines from the first-th on, starts their agents, and returns when all of them wait for work.
func (b *bench) startFleet(h *head, first, n int) (*fleet, error) {
	f := &fleet{head: h}
	f.ctx, f.stop = context.WithCancel(b.ctx)
	keys, err := auth.Load(filepath.Join(h.dir, "keys"))
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(32)
	for i := first; i < first+n; i++ {
		name := fmt.Sprintf("machine%05d", i)
		f.names = append(f.names, name)
		g.Go(func() error {
			m, err := client.Of[trivet.Machine](h.client).Create(ctx, &trivet.Machine{
				Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: benchMAC(i)}}},
			})
			if err != nil {
				return err
			}
			token, err := keys.SignBoot(auth.BootToken{
				Purpose: auth.PurposeBoot, Machine: name, MAC: benchMAC(i), Epoch: m.Status.Epoch, Expires: time.Now().Add(time.Hour),
			})
			if err != nil {
				return err
			}
			f.agents.Go(func() { f.agent(name, benchMAC(i), token) })
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return f, f.awaitAgents(b.ctx)
}

// agent is one agent's life.
func (f *fleet) agent(name, mac, token string) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	clock := &agent.Clock{}
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, key, clock.Now())
	}
	c, err := client.New(client.Config{Endpoints: []string{apiURL}, Trust: f.trust, UserAgent: "trivet-bench"})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var ended time.Time
	do := func(_ context.Context, at *action.Attempt) error {
		if at.Action.Name != "noop-0" {
			f.mu.Lock()
			f.boundaries = append(f.boundaries, time.Since(ended))
			f.mu.Unlock()
		}
		ended = time.Now()
		return nil
	}
	_, _ = agent.Run(f.ctx, agent.Config{ // ends with ctx
		Door: c.Door(sign, clock.Learn), Do: do, Machine: name, MAC: mac, Token: token, BootID: name, Version: "bench",
		Key: base64.StdEncoding.EncodeToString(public), Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
}

// awaitAgents returns when every agent has said hello.
func (f *fleet) awaitAgents(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		up := 0
		machines, _, err := client.Of[trivet.Machine](f.client).List(ctx, client.ListOptions{})
		if err != nil {
			return err
		}
		for _, m := range machines {
			if m.Status.BootID != "" && m.Status.State == trivet.MachineAvailable {
				up++
			}
		}
		if up == len(f.names) { // those of earlier fleets are active
			return nil
		}
	}
	return errors.New("not every agent has said hello")
}

// close ends the agents.
func (f *fleet) close() {
	f.stop()
	f.agents.Wait()
}
