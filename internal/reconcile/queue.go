package reconcile

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Queue is a work queue of keys. A key that is added again while it waits is processed once; a key is never processed
// by two workers at once. A key that failed is retried with backoff, also when it is added meanwhile: what a failing
// key writes would otherwise add it again at once. [Queue.Forget] ends the backoff.
type Queue struct {
	mu       sync.Mutex
	ready    []string          // guarded by mu
	waiting  map[string]bool   // guarded by mu; in ready
	running  map[string]bool   // guarded by mu; true: added again meanwhile
	delayed  map[string]*delay // guarded by mu
	failures map[string]int    // guarded by mu; consecutive
	closed   bool              // guarded by mu
	wake     chan struct{}
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{
		waiting: map[string]bool{}, running: map[string]bool{}, delayed: map[string]*delay{},
		failures: map[string]int{},
		wake:     make(chan struct{}, 1),
	}
}

// Add queues a key. One that failed waits until its backoff has passed.
func (q *Queue) Add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.backsOff(key) {
		q.add(key)
	}
}

// Forget resets the backoff of a key.
func (q *Queue) Forget(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failures, key)
}

// backsOff reports whether a key waits for its next attempt after a failure. mu is held.
func (q *Queue) backsOff(key string) bool { return q.failures[key] > 0 && q.delayed[key] != nil }

func (q *Queue) add(key string) {
	if d := q.delayed[key]; d != nil {
		d.timer.Stop()
		delete(q.delayed, key)
	}
	if _, ok := q.running[key]; ok {
		q.running[key] = true
		return
	}
	if q.closed || q.waiting[key] {
		return
	}
	q.waiting[key] = true
	q.ready = append(q.ready, key)
	q.signal()
}

// AddAfter queues a key after a delay, unless it is queued earlier. One that failed waits until its backoff has
// passed.
func (q *Queue) AddAfter(key string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, runs := q.running[key]; runs {
		q.running[key] = true
	} else if !q.waiting[key] && !q.backsOff(key) {
		q.addAfter(key, d)
	}
}

// delay is the timer of a key that is queued later.
type delay struct {
	timer *time.Timer
	at    time.Time
}

// addAfter queues a key that is neither waiting nor running after a delay, or at an earlier time that was already
// set.
func (q *Queue) addAfter(key string, d time.Duration) {
	old := q.delayed[key]
	if q.closed || old != nil && time.Until(old.at) <= d {
		return
	}
	if old != nil {
		old.timer.Stop()
	}
	next := &delay{at: time.Now().Add(d)}
	next.timer = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.delayed[key] == next {
			q.add(key)
		}
	})
	q.delayed[key] = next
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Work processes one key. It reads all state again and returns the delay after which the key is queued again, or 0.
type Work func(ctx context.Context, key string) (after time.Duration, err error)

// Run processes keys with a number of workers until ctx ends, and returns when they are idle. The queue cannot be
// used again.
func (q *Queue) Run(ctx context.Context, workers int, log *slog.Logger, do Work) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { q.work(ctx, log, do) })
	}
	wg.Wait()
	q.close()
}

func (q *Queue) work(ctx context.Context, log *slog.Logger, do Work) {
	for {
		key, ok := q.get(ctx)
		if !ok {
			return
		}
		after, err := do(ctx, key)
		if err != nil && ctx.Err() == nil {
			after = q.backoff(key)
			log.Warn("reconcile failed; will retry", "key", key, "after", after, "error", err)
		} else {
			q.Forget(key)
		}
		q.done(key, after)
	}
}

// get waits for a key.
func (q *Queue) get(ctx context.Context) (string, bool) {
	for ctx.Err() == nil {
		if key, ok := q.next(); ok {
			return key, true
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return "", false
}

func (q *Queue) next() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) == 0 {
		return "", false
	}
	key := q.ready[0]
	q.ready = q.ready[1:]
	delete(q.waiting, key)
	q.running[key] = false
	if len(q.ready) > 0 {
		q.signal()
	}
	return key, true
}

func (q *Queue) done(key string, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	added := q.running[key]
	delete(q.running, key)
	if added && q.failures[key] == 0 {
		q.add(key)
	} else if after > 0 {
		q.addAfter(key, after)
	}
}

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second
)

func (q *Queue) backoff(key string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failures[key]++
	d := min(minBackoff<<min(q.failures[key]-1, 10), maxBackoff)
	return d/2 + rand.N(d)
}

func (q *Queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for key, d := range q.delayed {
		d.timer.Stop()
		delete(q.delayed, key)
	}
}
