package reconcile

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/faultinject"
)

// Queue is a work queue of keys. A key that is added again while it waits is processed once; a key is never processed
// by two workers at once. A key that failed is retried with backoff, also when it is added meanwhile: what a failing
// key writes would otherwise add it again at once. [Queue.Forget] ends the backoff. Keys that failed use half of the
// workers at most, so that many which fail slowly do not hold up the others.
type Queue struct {
	mu       sync.Mutex
	ready    fifo              // guarded by mu, as all below
	retries  fifo              // ready, too, and failed the last time
	added    int               // keys that were made ready so far, for the order of both
	waiting  map[string]bool   // in ready or retries
	running  map[string]bool   // true: added again meanwhile
	retrying map[string]bool   // running, from retries
	most     int               // of retrying
	delayed  map[string]*delay // by key
	failures map[string]int    // consecutive
	logged   map[string]string // what was logged last of a key that fails; by key
	closed   bool
	wake     chan struct{}
}

// fifo is keys in the order in which they were made ready.
type fifo []item

type item struct {
	key string
	seq int
	at  time.Time
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	return &Queue{
		waiting: map[string]bool{}, running: map[string]bool{}, delayed: map[string]*delay{},
		failures: map[string]int{}, logged: map[string]string{}, retrying: map[string]bool{},
		wake: make(chan struct{}, 1),
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
	list := &q.ready
	if q.failures[key] > 0 {
		list = &q.retries
	}
	q.added++
	*list = append(*list, item{key, q.added, time.Now()})
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
	q.RunNamed(ctx, workers, "key", log, do)
}

// RunNamed is Run, with the name that keys have in logs.
func (q *Queue) RunNamed(ctx context.Context, workers int, name string, log *slog.Logger, do Work) {
	q.mu.Lock()
	q.most = max(1, workers/2)
	q.mu.Unlock()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() { q.work(ctx, name, log, do) })
	}
	wg.Wait()
	q.close()
}

func (q *Queue) work(ctx context.Context, name string, log *slog.Logger, do Work) {
	for {
		key, ok := q.get(ctx)
		if !ok {
			return
		}
		after, err := do(ctx, key)
		if err != nil && ctx.Err() == nil {
			after = q.backoff(key)
			level := slog.LevelDebug // it is known
			if q.isNews(key, err) {
				level = slog.LevelWarn
			}
			log.Log(ctx, level, "reconcile failed; will retry", name, key, "after", after, "error", err)
		} else {
			if err == nil && q.recovered(key) {
				log.Info("reconcile works again", name, key)
			}
			q.Forget(key)
		}
		q.done(key, after)
	}
}

// isNews reports whether a key has failed otherwise than the last time. Numbers differ from one attempt to the next:
// ports, times and request IDs.
func (q *Queue) isNews(key string, err error) bool {
	text := err.Error()
	text = WithoutNumbers(text[:min(len(text), maxLogged)])
	q.mu.Lock()
	defer q.mu.Unlock()
	last, failed := q.logged[key]
	q.logged[key] = text
	return !failed || last != text
}

// recovered reports whether a key that works now has failed the last time.
func (q *Queue) recovered(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, failed := q.logged[key]
	delete(q.logged, key)
	return failed
}

// maxLogged bounds the text of an error that is compared.
const maxLogged = 512

// WithoutNumbers returns what the texts of errors with one cause have in common, which differ in ports, times and IDs.
func WithoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
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
	list := q.first()
	if list == nil {
		return "", false
	}
	key := (*list)[0].key
	*list = (*list)[1:]
	delete(q.waiting, key)
	q.running[key] = false
	if list == &q.retries {
		q.retrying[key] = true
	}
	if q.first() != nil {
		q.signal()
	}
	return key, true
}

// first returns the list with the key that is processed next; nil: none is. mu is held.
func (q *Queue) first() *fifo {
	retry := len(q.retries) > 0 && len(q.retrying) < q.most
	switch {
	case len(q.ready) > 0 && (!retry || q.ready[0].seq < q.retries[0].seq):
		return &q.ready
	case retry:
		return &q.retries
	}
	return nil
}

func (q *Queue) done(key string, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	added := q.running[key]
	delete(q.running, key)
	delete(q.retrying, key)
	if q.first() != nil {
		q.signal() // a retry may have waited for this one
	}
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
	if faultinject.WriteRate {
		return time.Millisecond
	}
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
