package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet/internal/lab/grade"
	"github.com/trivet-project/trivet/internal/wait"
)

// faultInjector kills heads with SIGKILL and restarts them, one at a time, while machines install and clients write.
type faultInjector struct {
	heads    *headProcesses
	progress *tracker
	writers  []*writer
	boots    *booter
	gates    []chan struct{} // the i-th is closed before the i-th kill, to power on more machines
	rest     time.Duration   // after each kill

	outages []grade.Outage // one for each kill
	leaders int
}

// Faults is the result of a fault injection.
type Faults struct {
	HeadsKilled            int `json:"headsKilled"`
	LeadersKilled          int `json:"leadersKilled"`
	WorkflowsFailed        int `json:"workflowsFailed"`
	AcknowledgedWritesLost int `json:"acknowledgedWritesLost"`
	WriteGap               Gap `json:"writeGapMs"`
	BootGap                Gap `json:"bootGapMs"`
}

const (
	totalKills   = 12 // every third one kills the leader
	totalWriters = 4
	downtime     = 500 * time.Millisecond // of a killed head
)

func newFaultInjector(s *headProcesses, b *tracker, mac string) *faultInjector {
	st := &faultInjector{heads: s, progress: b, boots: &booter{}}
	note := func(subject, text string, began time.Time) {
		b.line(map[string]any{"what": "ack", "subject": subject, "text": text, "began": began.UTC()})
	}
	for i := range totalWriters {
		st.writers = append(st.writers, &writer{client: s.client, record: fmt.Sprint("written", i), note: note})
	}
	for _, n := range s.all {
		st.boots.urls = append(st.boots.urls, "http://"+n.host+":7481/boot/script/"+mac)
	}
	for range totalKills {
		st.gates = append(st.gates, make(chan struct{}))
	}
	return st
}

// gate returns a channel that is closed when a machine may be powered on.
func (st *faultInjector) gate(machine, of int) <-chan struct{} {
	return st.gates[machine*len(st.gates)/of]
}

// run runs the clients until ctx ends, and all kills.
func (st *faultInjector) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range st.writers {
		g.Go(func() error { return w.run(ctx) })
	}
	g.Go(func() error { return st.boots.run(ctx) })
	g.Go(func() error { return st.killAll(ctx) })
	return g.Wait()
}

func (st *faultInjector) killAll(ctx context.Context) error {
	for i, gate := range st.gates {
		close(gate)
		victim, leader := st.heads.all[rand.IntN(len(st.heads.all))], st.heads.leader(ctx)
		if i%3 == 0 && leader != nil {
			victim = leader
		}
		acting, err := st.waitBusy(ctx)
		if err != nil {
			return err
		}
		if err := st.kill(ctx, victim, victim == leader, acting); err != nil {
			return err
		}
		_ = wait.Sleep(ctx, st.rest)
	}
	return nil
}

// waitBusy waits until actions run and a write is unanswered, and returns the number of actions.
func (st *faultInjector) waitBusy(ctx context.Context) (acting int, err error) {
	for ctx.Err() == nil {
		if acting = st.progress.acting(); acting > 0 && slices.ContainsFunc(st.writers, (*writer).unanswered) {
			return acting, nil
		}
		_ = wait.Sleep(ctx, time.Millisecond)
	}
	return 0, context.Cause(ctx)
}

func (st *faultInjector) kill(ctx context.Context, n *headProcess, leader bool, acting int) error {
	at := time.Now()
	n.kill()
	if leader {
		st.leaders++
	}
	st.progress.line(map[string]any{"what": "kill", "subject": n.name, "leader": leader, "acting": acting})
	_ = wait.Sleep(ctx, downtime)
	if err := n.start(ctx); err != nil {
		return fmt.Errorf("restart after a kill: %w\n%s", err, n.logTail())
	}
	st.outages = append(st.outages, grade.Outage{From: at, To: time.Now()})
	st.progress.line(map[string]any{"what": "start", "subject": n.name})
	return st.heads.waitFor(ctx, "wait for all heads to be members", func() bool {
		c, err := st.heads.client.Cluster(ctx)
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

// summary checks whether any acknowledged write is lost.
func (st *faultInjector) summary(ctx context.Context) (*Faults, error) {
	f := &Faults{HeadsKilled: len(st.outages), LeadersKilled: st.leaders, WorkflowsFailed: st.progress.failedRuns()}
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
	var kills []time.Time
	for _, o := range st.outages {
		kills = append(kills, o.From)
	}
	f.WriteGap, f.BootGap = gaps(kills, writes...), gaps(kills, st.boots.got)
	return f, errors.Join(errs...)
}
