package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

const (
	workflowAgents = 500
	workflowRounds = 5
	noops          = 5
)

// workflows gives every agent a run of five actions that do nothing, all at once: from the first provision that is written
// until the last workflow is seen to have succeeded. Nothing is left out: each provision is created through the API, claims
// its machine, makes its workflow, is granted, reported and settled, each step a transaction that is on disk before the next.
func (b *bench) workflows() error {
	h, _, err := b.startHead(filepath.Join(b.dir, "workflows"))
	if err != nil {
		return err
	}
	defer h.close()
	if err := b.noopTemplate(h); err != nil {
		return err
	}
	var rates, processor, memory []float64
	var boundaries []time.Duration
	for round := range workflowRounds {
		got, err := b.workflowRound(h, round*workflowAgents)
		if err != nil {
			return err
		}
		rates, processor, memory = append(rates, got.rate), append(processor, got.processor), append(memory, got.memory)
		boundaries = append(boundaries, got.boundaries...)
	}
	r := b.report
	r.add(row{what: fmt.Sprintf("%d agents x %d actions, from the provision to its success", workflowAgents, noops), unit: "workflows/s", ours: median(rates), bound: over(500)})
	r.add(row{what: "between two actions, p50", unit: "ms", ours: ms(quantile(boundaries, 0.5))})
	r.add(row{what: "between two actions, p99", unit: "ms", ours: ms(quantile(boundaries, 0.99)), bound: under(20)})
	r.add(row{what: "head's processor time for one", unit: "ms", ours: median(processor)})
	r.add(row{what: "head's memory for a connected agent", unit: "KB", ours: memory[0]})
	peak, err := h.memory()
	r.add(row{what: "head's resident memory at the end", unit: "MB", ours: float64(peak) / 1e6})
	r.note("Agents and client run on the same computer as the head, and take their part of its cores. Tinkerbell v0.25.0 was measured once on 2 such cores, apart from this run: 12.9 workflows/s at best, 1 to 3 s between two actions, 1.1 GB.")
	return err
}

// ran is what one round measured.
type ran struct {
	rate       float64 // workflows/s
	processor  float64 // the head's, in ms for one
	memory     float64 // the head's, in KB for a connected agent
	boundaries []time.Duration
}

// workflowRound has agents of its own, as a machine that is given back boots anew.
func (b *bench) workflowRound(h *head, first int) (r ran, err error) {
	before, errBefore := h.memory()
	f, err := b.startFleet(h, first, workflowAgents)
	if err != nil {
		return r, err
	}
	defer f.close()
	after, errAfter := h.memory()
	r.memory = float64(after-before) / 1e3 / workflowAgents
	idle, errIdle := h.cpu()
	if r.rate, err = f.provisionAll(); err != nil {
		return r, err
	}
	used, errUsed := h.cpu()
	r.processor = ms(used-idle) / workflowAgents
	f.mu.Lock()
	defer f.mu.Unlock()
	r.boundaries = f.boundaries
	return r, errors.Join(errBefore, errAfter, errIdle, errUsed)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

func (b *bench) noopTemplate(h *head) error {
	t := &trivet.Template{Meta: trivet.Meta{Name: "noops"}}
	for i := range noops {
		t.Spec.Actions = append(t.Spec.Actions, trivet.Action{Name: fmt.Sprint("noop-", i), Use: "noop"})
	}
	_, err := client.Of[trivet.Template](h.client).Create(b.ctx, t)
	return err
}

// provisionAll runs one workflow on each machine.
func (f *fleet) provisionAll() (perSecond float64, err error) {
	began := time.Now()
	g, ctx := errgroup.WithContext(f.ctx)
	g.Go(func() error { return f.awaitSuccess(ctx) })
	g.Go(func() error {
		return f.each(ctx, func(ctx context.Context, name string) error {
			_, err := client.Of[trivet.Provision](f.client).Create(ctx, &trivet.Provision{
				Meta: trivet.Meta{Name: name}, Spec: trivet.ProvisionSpec{Template: "noops", Machine: name},
			})
			return err
		})
	})
	err = g.Wait()
	return float64(len(f.names)) / time.Since(began).Seconds(), err
}

// each does something for every machine, 32 at a time.
func (f *fleet) each(ctx context.Context, do func(ctx context.Context, name string) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for _, name := range f.names {
		g.Go(func() error { return do(ctx, name) })
	}
	return g.Wait()
}

// awaitSuccess follows the provisions until all have succeeded.
func (f *fleet) awaitSuccess(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	succeeded := map[string]bool{}
	for e, err := range f.client.Watch(ctx, client.WatchOptions{Kinds: []trivet.Kind{"Provision"}}) {
		if err != nil {
			return fmt.Errorf("%d of %d have succeeded: %w", len(succeeded), len(f.names), err)
		}
		p, ok := e.Record.(*trivet.Provision)
		switch {
		case !ok || p.Spec.Machine < f.names[0]: // of an earlier round
		case p.Status.State == trivet.ProvisionFailed:
			return fmt.Errorf("%s failed: %s", p.Name, p.Status.Reason)
		case p.Status.State == trivet.ProvisionSucceeded:
			succeeded[p.Name] = true
		}
		if len(succeeded) == len(f.names) {
			return nil
		}
	}
	return context.Cause(ctx)
}
