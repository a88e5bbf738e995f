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
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/store"
)

// Config is what the controllers work with.
type Config struct {
	Fleet    *fleet.Fleet
	Presence *presence.Tracker
	Members  Members
	Quorum   func() bool                      // whether writes can be served
	Seen     func() map[string]headdoor.Sight // of the other heads, by name
	Blobs    *headdoor.Blobs
	Live     func(head string) bool // whether another head would do its part
	Unseal   Unseal
	Logs     *runlog.Store
	Log      *slog.Logger
}

// Run runs all controllers of a head until ctx ends.
func Run(ctx context.Context, cfg Config) {
	turn := turns{cfg.Fleet, cfg.Live}
	p := provisions{cfg.Fleet}
	d := deadlines{fleet: cfg.Fleet, presence: cfg.Presence, turn: turn, up: newUpTime(cfg.Quorum), waits: map[string]*clock{}}
	w := powers{fleet: cfg.Fleet, unseal: cfg.Unseal, seen: map[string]sight{}}
	h := heads{cfg.Fleet, cfg.Members, cfg.Seen}
	b := blobs{cfg.Fleet, cfg.Blobs}
	l := leftovers{cfg.Fleet, cfg.Logs}
	var wg sync.WaitGroup
	for _, c := range []*loop{
		{name: "provision", workers: 4, rank: turn.rank, kind: "Provision", all: names(cfg.Fleet.Provisions), do: p.reconcile,
			also: []trivet.Kind{"Machine"}, requeue: p.whenFree},
		{name: "deadline", workers: 2, kind: "Workflow", all: names(cfg.Fleet.Workflows), do: d.reconcile},
		{name: "power", workers: 16, rank: turn.rank, kind: "Machine", all: names(cfg.Fleet.Machines), do: w.reconcile},
		{name: "heads", workers: 1, kind: "Head", all: names(cfg.Fleet.Heads), do: h.reconcile},
		{name: "blobs", workers: 2, all: b.all, do: b.reconcile, also: []trivet.Kind{"Image", "Platform", "Workflow", "Head"}, requeue: b.of},
	} {
		c.store, c.log, c.queue = cfg.Fleet.Store, cfg.Log.With("controller", c.name), store.NewQueue()
		wg.Go(func() { c.run(ctx) })
	}
	wg.Go(func() { d.up.run(ctx) })
	wg.Go(func() { l.run(ctx, func(err error) { cfg.Log.Warn("sweep", "error", err) }) })
	wg.Wait()
}

// loop feeds one controller: every record of its kind at the start, and each again when it changes. One without a kind has keys
// of its own.
type loop struct {
	name    string
	workers int
	kind    trivet.Kind
	all     func() []string // names of the kind's records, or keys
	do      func(context.Context, string) (time.Duration, error)
	// also are other kinds whose changes may concern this one: requeue says which records get a turn.
	also    []trivet.Kind
	requeue func(*store.Event) []string
	// rank is this head's place among those that could do the same; nil: it is always the first.
	rank func(key string) int

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
	kinds := l.also
	if l.kind != "" {
		kinds = append([]trivet.Kind{l.kind}, kinds...)
	}
	watch := l.store.Watch(0, kinds...)
	for _, name := range l.all() {
		l.add(name)
	}
	for {
		events, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Kind == l.kind {
				l.add(e.Name)
				continue
			}
			for _, key := range l.requeue(e) {
				l.add(key)
			}
		}
	}
}

// add gives a key a turn: at once, or later where another head goes first.
func (l *loop) add(key string) {
	rank := 0
	if l.rank != nil {
		rank = l.rank(key)
	}
	if rank == 0 {
		l.queue.Add(key)
		return
	}
	l.queue.AddAfter(key, time.Duration(rank)*turnTime)
}

func names[T any](t *store.Table[T]) func() []string {
	return func() (names []string) {
		for r := range t.AllShared() {
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
