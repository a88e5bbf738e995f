package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

const (
	gapKills = 100
	gapRest  = 500 * time.Millisecond // a head is down for
)

// gap kills the head that leads, again and again, while programs write without a pause through the SDK, and measures
// for how long each of them had no write acknowledged. Each of the three uses another head first, so one of them had
// its own head killed.
func (b *bench) gap() error {
	s, err := b.startSite("gap", threeHosts)
	if err != nil {
		return err
	}
	defer s.close()
	if err := b.steady(s); err != nil {
		return err
	}
	writers, err := s.writers()
	if err != nil {
		return err
	}
	first, err := s.term()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range writers {
		defer w.client.Close()
		g.Go(func() error { return w.run(ctx) })
	}
	var kills []kill
	for range gapKills {
		k, err := s.killLeader(writers)
		if err != nil {
			return err
		}
		kills = append(kills, k)
	}
	stop()
	if err := g.Wait(); err != nil {
		return err
	}
	last, err := s.term()
	if err != nil {
		return err
	}
	if err := b.gaps(s, writers, kills); err != nil {
		return err
	}
	b.report.add(row{what: "elections for each kill", ours: (last - first) / gapKills})
	return nil
}

// gaps reports.
func (b *bench) gaps(s *site, writers []*writer, kills []kill) error {
	var all, own []time.Duration
	for _, w := range writers {
		if err := w.complete(b.ctx, s.client); err != nil {
			return err
		}
		for _, k := range kills {
			gap := w.gapAt(k.at)
			all = append(all, gap)
			if w.first == k.head {
				own = append(own, gap)
			}
		}
	}
	r := b.report
	what := fmt.Sprintf("%d kills of the leader, %d writers: no write acknowledged, p50", len(kills), len(writers))
	r.add(row{what: what, unit: "ms",
		ours: ms(quantile(all, 0.5)), bound: under(300)})
	r.add(row{what: "p99", unit: "ms", ours: ms(quantile(all, 0.99))})
	r.add(row{what: "longest", unit: "ms", ours: ms(slices.Max(all)), bound: under(1000)})
	r.add(row{what: "p50 of the writer whose own head was killed", unit: "ms", ours: ms(quantile(own, 0.5))})
	r.note("From the last write that was acknowledged before a kill -9 of the head that leads to the first one " +
		"after it, as a program with the SDK sees it. Without a kill there are some 10 ms between two: a pause of " +
		"5 ms and a write that is on two disks. No acknowledged write was lost.")
	return nil
}

// kill is a leader's end.
type kill struct {
	at   time.Time
	head *member
}

// killLeader does so while all write, waits until they write again, and starts the head again.
func (s *site) killLeader(writers []*writer) (k kill, err error) {
	if err := s.whole(); err != nil {
		return k, err
	}
	if err := s.write(writers, 50); err != nil {
		return k, err
	}
	if k.head, err = s.leader(); err != nil {
		return k, err
	}
	k.at = time.Now()
	k.head.Kill()
	time.Sleep(gapRest)
	if err := s.write(writers, 10); err != nil {
		return k, err
	}
	return k, s.start(k.head)
}

// write returns when each writer had n more writes acknowledged.
func (s *site) write(writers []*writer, n int) error {
	want := map[*writer]int{}
	for _, w := range writers {
		want[w] = w.count() + n
	}
	return s.await("writes continue", func() bool {
		return !slices.ContainsFunc(writers, func(w *writer) bool { return w.count() < want[w] })
	})
}

// writer counts up in a record, as fast as it is answered.
type writer struct {
	client *client.Client
	first  *member // the head that it uses first
	record string

	mu   sync.Mutex
	acks []time.Time // guarded by mu
}

func (s *site) writers() (all []*writer, err error) {
	for i, m := range s.heads {
		w := &writer{first: m, record: fmt.Sprint("written", i)}
		if w.client, err = s.login(i); err != nil {
			return nil, err
		}
		all = append(all, w)
		if err := s.template(w.record, "nothing"); err != nil {
			return nil, err
		}
	}
	return all, nil
}

const countLabel = "count"

// run writes until ctx ends. A write that failed is repeated: a count that is written twice is the same count.
func (w *writer) run(ctx context.Context) error {
	records := client.Of[trivet.Template](w.client)
	for ctx.Err() == nil {
		patch := fmt.Appendf(nil, `{"labels":{%q:"%d"}}`, countLabel, w.count()+1)
		if _, err := records.Patch(ctx, w.record, patch, 0); err == nil {
			w.mu.Lock()
			w.acks = append(w.acks, time.Now())
			w.mu.Unlock()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acks)
}

// gapAt is the time between the last acknowledgement before a moment and the first after it.
func (w *writer) gapAt(at time.Time) time.Duration {
	i, _ := slices.BinarySearchFunc(w.acks, at, time.Time.Compare)
	return w.acks[i].Sub(w.acks[i-1])
}

// complete is an error where the record has less than was acknowledged.
func (w *writer) complete(ctx context.Context, c *client.Client) error {
	t, err := client.Of[trivet.Template](c).Get(ctx, w.record)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(t.Labels[countLabel]); err != nil || n < w.count() {
		return fmt.Errorf("%s: %q is stored, %d was acknowledged", w.record, t.Labels[countLabel], w.count())
	}
	return nil
}
