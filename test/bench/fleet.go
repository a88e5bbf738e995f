package main

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/testhead"
)

// fleet is machines of a site, whose agents are in a process of their own (agentpool.go).
type fleet struct {
	*site
	agents *program
	pool   *rpc.Client
	first  int
	names  []string
}

// writeMachines creates the records of n machines from the first-th on.
func (s *site) writeMachines(first, n int) (*fleet, error) {
	f := &fleet{site: s, first: first}
	for i := range n {
		f.names = append(f.names, fmt.Sprintf("machine%05d", first+i))
	}
	return f, f.each(f.names, func(ctx context.Context, i int) error {
		_, err := client.Of[trivet.Machine](f.client).Create(ctx, &trivet.Machine{
			Meta: trivet.Meta{Name: f.names[i]},
			Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: benchMAC(first + i)}}},
		})
		return err
	})
}

// each calls do for many, 32 at a time.
func (s *site) each(names []string, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(s.b.ctx)
	g.SetLimit(32)
	for i := range names {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

// boot starts the machines' agents, and returns when each was granted its hello.
func (f *fleet) boot() error {
	keys, err := auth.Load(filepath.Join(f.heads[0].dir, "keys"))
	if err != nil {
		return err
	}
	req := StartRequest{Endpoints: f.admin.Endpoints, Trust: f.admin.Trust}
	for i, name := range f.names {
		mac := benchMAC(f.first + i)
		token, err := keys.SignBoot(auth.BootToken{
			Purpose: auth.PurposeBoot, Machine: name, MAC: mac, Expires: time.Now().Add(time.Hour),
		})
		if err != nil {
			return err
		}
		req.Machines = append(req.Machines, BootedMachine{name, mac, token})
	}
	if err := f.startAgentPool(); err != nil {
		return err
	}
	if err := f.pool.Call("AgentPool.Start", req, nil); err != nil {
		return err
	}
	return f.until("every agent was granted its hello", func(l Counters) bool { return l.Granted == len(f.names) })
}

func (f *fleet) startAgentPool() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := testhead.Command("", self, "-agent-pool")
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return err
	}
	p, err := testhead.Start(cmd)
	if err != nil {
		return err
	}
	f.pool, f.agents = rpc.NewClient(both{out, in}), &program{p, os.DevNull}
	return nil
}

// timeout bounds everything that all agents do.
const timeout = 5 * time.Minute

// until returns when a condition on the counters is true.
func (f *fleet) until(what string, so func(Counters) bool) error {
	var l Counters
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		l = Counters{}
		if err := f.pool.Call("AgentPool.Count", struct{}{}, &l); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if so(l) {
			return nil
		}
		select {
		case <-f.b.ctx.Done():
			return f.b.ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s: not within %s: %+v", what, timeout, l)
}

// close ends the agents.
func (f *fleet) close() {
	if f.agents != nil {
		_ = f.pool.Close()
		f.agents.stop()
	}
}

// template creates a template whose actions do nothing, or wait.
func (s *site) template(name string, actions ...string) error {
	t := &trivet.Template{Meta: trivet.Meta{Project: "default", Name: name}}
	for _, a := range actions {
		t.Spec.Actions = append(t.Spec.Actions, trivet.Action{Name: a, Use: "noop"})
	}
	_, err := client.Of[trivet.Template](s.client).Create(s.b.ctx, t)
	return err
}

// provision starts a run on each machine, and does not wait.
func (f *fleet) provision(template string, names []string) error {
	return f.each(names, func(ctx context.Context, i int) error {
		_, err := client.Of[trivet.Provision](f.client).Create(ctx, &trivet.Provision{
			Meta: trivet.Meta{Project: "default", Name: names[i]},
			Spec: trivet.ProvisionSpec{Template: template, Machine: names[i]},
		})
		return err
	})
}

// provisionAll starts a run on each machine, and returns how many succeeded per second: from the first provision that
// is written until the last is observed to have succeeded.
func (f *fleet) provisionAll(template string, names []string) (perSecond float64, err error) {
	began := time.Now()
	var g errgroup.Group
	g.Go(func() error { return f.awaitSuccess(names) })
	g.Go(func() error { return f.provision(template, names) })
	err = g.Wait()
	return float64(len(names)) / time.Since(began).Seconds(), err
}

// awaitSuccess follows the provisions of machines until all have succeeded.
func (f *fleet) awaitSuccess(names []string) error {
	ctx, cancel := context.WithTimeout(f.b.ctx, timeout)
	defer cancel()
	left := map[string]bool{}
	for _, name := range names {
		left[name] = true
	}
	for e, err := range f.client.Watch(ctx, client.WatchOptions{Kinds: []trivet.Kind{"Provision"}}) {
		if err != nil {
			return fmt.Errorf("%d of %d have not succeeded: %w", len(left), len(names), err)
		}
		if p, ok := e.Record.(*trivet.Provision); ok && left[p.Name] {
			switch p.Status.State {
			case trivet.ProvisionFailed:
				return fmt.Errorf("%s failed: %s", p.Name, p.Status.Reason)
			case trivet.ProvisionSucceeded:
				delete(left, p.Name)
			}
		}
		if len(left) == 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
