package store

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Queue hands keys to workers. A key that is added again before its turn has one turn; a key never has two turns at once; a
// key whose turn failed comes again, later each time.
type Queue struct {
	mu      sync.Mutex
	ready   []string          // guarded by mu
	waiting map[string]bool   // guarded by mu; in ready
	running map[string]bool   // guarded by mu; true: added again meanwhile
	later   map[string]*alarm // guarded by mu
	fails   map[string]int    // guarded by mu
	closed  bool              // guarded by mu
	wake    chan struct{}
}

// NewQueue makes an empty queue.
func NewQueue() *Queue {
	return &Queue{
		waiting: map[string]bool{}, running: map[string]bool{}, later: map[string]*alarm{}, fails: map[string]int{},
		wake: make(chan struct{}, 1),
	}
}

// Add gives a key a turn as soon as a worker is free.
func (q *Queue) Add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key)
}

func (q *Queue) add(key string) {
	if a := q.later[key]; a != nil {
		a.timer.Stop()
		delete(q.later, key)
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

// AddAfter gives a key a turn after a while, or earlier where it gets one anyway.
func (q *Queue) AddAfter(key string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, runs := q.running[key]; runs {
		q.running[key] = true
	} else if !q.waiting[key] {
		q.addAfter(key, d)
	}
}

// alarm is a turn to come.
type alarm struct {
	timer *time.Timer
	at    time.Time
}

// addAfter gives a key that is neither waiting nor running a turn after a while, or at an earlier time that was set for it.
func (q *Queue) addAfter(key string, d time.Duration) {
	old := q.later[key]
	if q.closed || old != nil && time.Until(old.at) <= d {
		return
	}
	if old != nil {
		old.timer.Stop()
	}
	a := &alarm{at: time.Now().Add(d)}
	a.timer = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.later[key] == a {
			q.add(key)
		}
	})
	q.later[key] = a
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Run works with so many workers until ctx ends, and returns when their last turns have ended; the queue is of no use then. do gets a key, reads everything afresh, and says after how long it wants
// another turn (0: not by itself) or why it failed.
func (q *Queue) Run(ctx context.Context, workers int, log *slog.Logger, do func(context.Context, string) (time.Duration, error)) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, ok := q.take(ctx)
				if !ok {
					return
				}
				again, err := do(ctx, key)
				if err != nil && ctx.Err() == nil {
					again = q.backoff(key)
					log.Warn("will try again", "key", key, "after", again, "error", err)
				} else {
					q.forgive(key)
				}
				q.finish(key, again)
			}
		})
	}
	wg.Wait()
	q.close()
}

func (q *Queue) take(ctx context.Context) (string, bool) {
	for ctx.Err() == nil {
		if key, ok := q.first(); ok {
			return key, true
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
	return "", false
}

func (q *Queue) first() (string, bool) {
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

func (q *Queue) finish(key string, again time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	added := q.running[key]
	delete(q.running, key)
	if added {
		q.add(key)
	} else if again > 0 {
		q.addAfter(key, again)
	}
}

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 30 * time.Second
)

func (q *Queue) backoff(key string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fails[key]++
	d := min(firstBackoff<<min(q.fails[key]-1, 10), lastBackoff)
	return d/2 + rand.N(d)
}

func (q *Queue) forgive(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.fails, key)
}

func (q *Queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for key, a := range q.later {
		a.timer.Stop()
		delete(q.later, key)
	}
}
