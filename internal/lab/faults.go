package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// faultInjector kills heads by kill -9 and starts them again, one at a time, while machines install and programs write.
type faultInjector struct {
	site    *headProcesses
	board   *tracker
	writers []*writer
	boots   *booter
	gates   []chan struct{} // the i-th is opened before the i-th kill: more machines are powered on

	faults  []time.Time
	leaders int
}

// Faults is what came of a storm.
type Faults struct {
	HeadsKilled            int `json:"headsKilled"`
	LeadersKilled          int `json:"leadersKilled"`
	WorkflowsFailed        int `json:"workflowsFailed"`
	AcknowledgedWritesLost int `json:"acknowledgedWritesLost"`
	WriteGap               Gap `json:"writeGapMs"`
	BootGap                Gap `json:"bootGapMs"`
}

const (
	stormKills   = 12 // every third of the leader
	stormWriters = 4
	stormRest    = 500 * time.Millisecond // a head is down for
)

func newStorm(s *headProcesses, b *tracker, mac string) *faultInjector {
	st := &faultInjector{site: s, board: b, boots: &booter{}}
	for i := range stormWriters {
		st.writers = append(st.writers, &writer{client: s.client, record: fmt.Sprint("written", i), note: func(subject, text string, began time.Time) {
			b.line(map[string]any{"what": "ack", "subject": subject, "text": text, "began": began.UTC()})
		}})
	}
	for _, n := range s.all {
		st.boots.urls = append(st.boots.urls, "http://"+n.host+":7481/boot/script/"+mac)
	}
	for range stormKills {
		st.gates = append(st.gates, make(chan struct{}))
	}
	return st
}

// gate is what a machine waits for before it is powered on.
func (st *faultInjector) gate(machine, of int) <-chan struct{} {
	return st.gates[machine*len(st.gates)/of]
}

// run lasts until ctx ends; the kills end earlier, and then calm is called.
func (st *faultInjector) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range st.writers {
		g.Go(func() error { return w.run(ctx) })
	}
	g.Go(func() error { return st.boots.run(ctx) })
	g.Go(func() error { return st.rage(ctx) })
	return g.Wait()
}

func (st *faultInjector) rage(ctx context.Context) error {
	for i, gate := range st.gates {
		close(gate)
		victim, leader := st.site.all[rand.IntN(len(st.site.all))], st.site.leader(ctx)
		if i%3 == 0 && leader != nil {
			victim = leader
		}
		acting, err := st.await(ctx)
		if err != nil {
			return err
		}
		if err := st.kill(ctx, victim, victim == leader, acting); err != nil {
			return err
		}
	}
	return nil
}

// await returns when actions run and a write is unanswered, and says how many.
func (st *faultInjector) await(ctx context.Context) (acting int, err error) {
	for ctx.Err() == nil {
		if acting = st.board.acting(); acting > 0 && slices.ContainsFunc(st.writers, (*writer).unanswered) {
			return acting, nil
		}
		pause(ctx, time.Millisecond)
	}
	return 0, context.Cause(ctx)
}

func (st *faultInjector) kill(ctx context.Context, n *headProcess, leads bool, acting int) error {
	at := time.Now()
	n.kill()
	st.faults = append(st.faults, at)
	if leads {
		st.leaders++
	}
	st.board.line(map[string]any{"what": "kill", "subject": n.name, "leader": leads, "acting": acting})
	pause(ctx, stormRest)
	if err := n.start(ctx); err != nil {
		return fmt.Errorf("after its kill: %w\n%s", err, n.lastWords())
	}
	st.board.line(map[string]any{"what": "start", "subject": n.name})
	return st.site.await(ctx, "all heads count", func() bool {
		c, err := st.site.client.Cluster(ctx)
		if err != nil {
			return false
		}
		for _, h := range c.Heads {
			if h.State != "member" && h.State != "leader" {
				return false
			}
		}
		return true
	})
}

// summary looks whether anything that was acknowledged is lost.
func (st *faultInjector) summary(ctx context.Context) (*Faults, error) {
	f := &Faults{HeadsKilled: len(st.faults), LeadersKilled: st.leaders, WorkflowsFailed: st.board.failedRuns()}
	var writes [][]time.Time
	var errs []error
	for _, w := range st.writers {
		lost, err := w.lost(ctx)
		if lost {
			f.AcknowledgedWritesLost++
		}
		errs = append(errs, err)
		writes = append(writes, w.acks)
	}
	f.WriteGap, f.BootGap = gaps(st.faults, writes...), gaps(st.faults, st.boots.got)
	return f, errors.Join(errs...)
}
