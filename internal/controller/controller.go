// Package controller makes what is wanted happen. Each controller gets the key of a record that changed, or whose time has
// come, reads everything afresh, and does the next thing. A controller may run twice at once, on one head or two: what it
// writes is decided by compare, in internal/fleet. Controllers meet only in records.
package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	headdoor "github.com/trivet-project/trivet/internal/heads"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/store"
)

// Config is what the controllers work with.
type Config struct {
	Fleet   *fleet.Fleet
	Members Members
	Seen    func() map[string]headdoor.Sight // of the other heads, by name
	Unseal  Unseal
	Logs    *runlog.Store
	Log     *slog.Logger
}

// Run runs all controllers of a head until ctx ends.
func Run(ctx context.Context, cfg Config) {
	p := provisions{cfg.Fleet}
	d := deadlines{fleet: cfg.Fleet, waits: map[string]*clock{}}
	w := powers{cfg.Fleet, cfg.Unseal}
	h := heads{cfg.Fleet, cfg.Members, cfg.Seen}
	l := leftovers{cfg.Fleet, cfg.Logs}
	var wg sync.WaitGroup
	for _, c := range []*loop{
		{name: "provision", workers: 4, kind: "Provision", all: names(cfg.Fleet.Provisions), do: p.reconcile,
			also: "Machine", requeue: p.whenFree},
		{name: "deadline", workers: 2, kind: "Workflow", all: names(cfg.Fleet.Workflows), do: d.reconcile},
		{name: "power", workers: 16, kind: "Machine", all: names(cfg.Fleet.Machines), do: w.reconcile},
		{name: "heads", workers: 1, kind: "Head", all: names(cfg.Fleet.Heads), do: h.reconcile},
	} {
		c.store, c.log, c.queue = cfg.Fleet.Store, cfg.Log.With("controller", c.name), store.NewQueue()
		wg.Go(func() { c.run(ctx) })
	}
	wg.Go(func() { l.run(ctx, func(err error) { cfg.Log.Warn("sweep", "error", err) }) })
	wg.Wait()
}

// loop feeds one controller: every record of its kind at the start, and each again when it changes.
type loop struct {
	name    string
	workers int
	kind    trivet.Kind
	all     func() []string // names of the kind's records
	do      func(context.Context, string) (time.Duration, error)
	// also is another kind whose changes may concern this one: requeue says which records get a turn.
	also    trivet.Kind
	requeue func(*store.Event) []string

	store *store.Store
	queue *store.Queue
	log   *slog.Logger
}

func (l *loop) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { l.queue.Run(ctx, l.workers, l.log, l.do) })
	for ctx.Err() == nil {
		if err := l.feed(ctx); ctx.Err() == nil {
			l.log.Warn("the change feed broke; reading everything afresh", "error", err)
			pause(ctx, 100*time.Millisecond)
		}
	}
	wg.Wait()
}

// feed queues what is there, then what changes. It ends when the feed no longer reaches back.
func (l *loop) feed(ctx context.Context) error {
	kinds := []trivet.Kind{l.kind}
	if l.also != "" {
		kinds = append(kinds, l.also)
	}
	watch := l.store.Watch(0, kinds...)
	for _, name := range l.all() {
		l.queue.Add(name)
	}
	for {
		events, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Kind == l.kind {
				l.queue.Add(e.Name)
				continue
			}
			for _, key := range l.requeue(e) {
				l.queue.Add(key)
			}
		}
	}
}

func names[T any](t *store.Table[T]) func() []string {
	return func() (names []string) {
		for r := range t.PeekAll() {
			names = append(names, any(r).(trivet.Record).Header().Name)
		}
		return names
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
