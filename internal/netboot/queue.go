package netboot

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Bounds of what is written later.
const (
	maxQueue     = 4096
	queueWriters = 8 // so that transactions share the store's fsync
	queueTimeout = 5 * time.Second
)

// queue does later what a packet must not wait for. Each item waits in it once, however often it is added. What does not
// fit or fails is dropped and counted: only what will be added again, or can be missed, goes by a queue.
type queue[T comparable] struct {
	what  string
	do    func(context.Context, T) error
	log   *slog.Logger
	lost  prometheus.Counter
	items chan T

	mu sync.Mutex
	// guards following
	waiting map[T]bool
}

func newQueue[T comparable](d *Door, what string, do func(context.Context, T) error) *queue[T] {
	return &queue[T]{what: what, do: do, log: d.log, lost: d.metrics.lost.WithLabelValues(what),
		items: make(chan T, maxQueue), waiting: map[T]bool{}}
}

// add never waits.
func (q *queue[T]) add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting[item] {
		return
	}
	select {
	case q.items <- item:
		q.waiting[item] = true
	default:
		q.lost.Inc()
	}
}

// run does what is added until ctx ends.
func (q *queue[T]) run(ctx context.Context) error {
	var writers errgroup.Group
	for range queueWriters {
		writers.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case item := <-q.items:
					q.one(ctx, item)
				}
			}
		})
	}
	return writers.Wait()
}

func (q *queue[T]) one(ctx context.Context, item T) {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	err := q.do(ctx, item)
	q.mu.Lock()
	delete(q.waiting, item)
	q.mu.Unlock()
	if err != nil {
		q.lost.Inc()
		q.log.Debug("netboot: not written", "what", q.what, "item", item, "error", err)
	}
}
