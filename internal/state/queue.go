package state

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of a WriteQueue.
const (
	maxQueued    = 4096
	queueWriters = 8 // so that transactions share the store's fsync
	writeTimeout = 5 * time.Second
)

var errQueueFull = errors.New("the queue is full")

// WriteQueue makes the writes that its caller must not wait for. An item is queued once, however often it is added.
// An item that does not fit or whose write fails is dropped: only what will be added again, or may be lost, is
// queued.
type WriteQueue[T comparable] struct {
	write   func(context.Context, T) error
	dropped func(T, error)
	items   chan T

	mu sync.Mutex
	// guards following
	queued map[T]bool
}

// NewWriteQueue returns a queue that writes each item by write and reports those that it drops to dropped.
func NewWriteQueue[T comparable](write func(context.Context, T) error, dropped func(T, error)) *WriteQueue[T] {
	return &WriteQueue[T]{write: write, dropped: dropped, items: make(chan T, maxQueued), queued: map[T]bool{}}
}

// Add queues an item. It never waits.
func (q *WriteQueue[T]) Add(item T) {
	if !q.add(item) {
		q.dropped(item, errQueueFull)
	}
}

func (q *WriteQueue[T]) add(item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.queued[item] {
		return true
	}
	select {
	case q.items <- item:
		q.queued[item] = true
		return true
	default:
		return false
	}
}

// Run writes what is queued until ctx ends.
func (q *WriteQueue[T]) Run(ctx context.Context) error {
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

func (q *WriteQueue[T]) one(ctx context.Context, item T) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := q.write(ctx, item)
	q.mu.Lock()
	delete(q.queued, item)
	q.mu.Unlock()
	if err != nil {
		q.dropped(item, err)
	}
}
