// Package reconcile runs controllers: a work queue of keys per controller, fed by the change feed, with retries and
// backoff.
//
// A controller gets a key, reads all state again and takes the next step. It may run twice at once, on one head or
// on two: what it writes is decided by compare. Controllers meet only in records. Each declares the kinds that it
// reads and writes, and is limited to them: its transactions run within this scope, as do its reads of the tables
// that it is given.
package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Controller brings its records to their desired state, one key at a time.
type Controller interface {
	Declaration() Declaration
	// Keys returns all keys. They are queued at the start, and when the change feed was interrupted.
	Keys() []string
	// Affected returns the keys that a change of a watched kind concerns.
	Affected(e *store.Event) []string
	// Reconcile processes a key, whose record may be deleted. It returns the delay after which the key is queued again,
	// or 0. After an error the key is retried with backoff.
	Reconcile(ctx context.Context, key string) (after time.Duration, err error)
}

// Background is a controller that also runs in the background. Run ends when ctx does.
type Background interface {
	Run(ctx context.Context)
}

// Holder is a ranked controller of which a head can hold a key: the other heads must wait for it.
type Holder interface {
	// Holds reports whether this head holds a key. It processes it at once, whatever its rank.
	Holds(key string) bool
}

// Declaration is what a controller needs.
type Declaration struct {
	Name string
	// Reads and Writes are the kinds that it reads and writes. What it writes it may read as well.
	Reads, Writes []trivet.Kind
	// Watches are those of these kinds whose changes it gets.
	Watches []trivet.Kind
	// Input returns what the controller acts on in a record besides its spec, as a value that can be compared by ==. A
	// change of it, or of the spec, ends the backoff of the keys that it affects; other changes do not, such as those
	// that the controller itself writes. nil: it acts on specs only.
	Input func(trivet.Record) any
	// Subject is what keys are called in logs, as "machine"; empty: "key".
	Subject string
	// Workers is how many keys are processed at once.
	Workers int
	// Ranked controllers process a key first on the head that ranks first for it, and later on the others. It only
	// saves work.
	Ranked bool
}

// Scope returns the kinds as the store enforces them.
func (d Declaration) Scope() *store.Scope {
	return store.NewScope("controller "+d.Name, d.Reads, d.Writes)
}

// Validate reports a declaration that contradicts itself.
func (d Declaration) Validate() error {
	if d.Name == "" || d.Workers < 1 {
		return fmt.Errorf("controller %q: %w: it needs a name and a worker", d.Name, trivet.ErrInvalid)
	}
	for _, kind := range d.Watches {
		if !slices.Contains(d.Reads, kind) && !slices.Contains(d.Writes, kind) {
			return fmt.Errorf("%w: controller %s watches %s", store.ErrScope, d.Name, kind)
		}
	}
	return nil
}

// Config is what controllers run on.
type Config struct {
	Store *store.Store
	// Rank returns how many heads go before this one for a key; nil: none.
	Rank    func(key string) int
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// rankDelay is how long a head leaves a key to each head that ranks before it.
const rankDelay = 2 * time.Second

// Run runs controllers until ctx ends. It fails at once where a declaration is not valid.
func Run(ctx context.Context, cfg Config, controllers ...Controller) error {
	for _, c := range controllers {
		if err := c.Declaration().Validate(); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	queues := collector{}
	for _, c := range controllers {
		r := newRunner(cfg, c)
		queues[r.declared.Name] = r.queue
		wg.Go(func() { r.run(ctx) })
		if b, ok := c.(Background); ok {
			wg.Go(func() { b.Run(ctx) })
		}
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(queues)
	}
	wg.Wait()
	return nil
}

// runner runs one controller.
type runner struct {
	Config
	controller Controller
	declared   Declaration
	scope      *store.Scope
	queue      *Queue
}

func newRunner(cfg Config, c Controller) *runner {
	d := c.Declaration()
	cfg.Log = cfg.Log.With("controller", d.Name)
	return &runner{Config: cfg, controller: c, declared: d, scope: d.Scope(), queue: NewQueue()}
}

func (r *runner) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.queue.RunNamed(ctx, r.declared.Workers, cmp.Or(r.declared.Subject, "key"), r.Log, r.process) })
	for ctx.Err() == nil {
		if err := r.feed(ctx); ctx.Err() == nil {
			r.Log.Warn("the change feed was interrupted; listing all records again", "error", err)
			pause(ctx, 100*time.Millisecond)
		}
	}
	wg.Wait()
}

// feed queues all keys, and then those that changes affect. It ends when the change feed was interrupted.
func (r *runner) feed(ctx context.Context) (err error) {
	defer recovered(&err)
	watch := r.Store.Watch(0, r.declared.Watches...)
	for _, key := range r.controller.Keys() {
		r.add(key)
	}
	if len(r.declared.Watches) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		events, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			keys := r.controller.Affected(e)
			changed := len(keys) > 0 && r.declared.inputChanged(e.Old(), e.Record())
			for _, key := range keys {
				if changed {
					r.queue.Forget(key)
				}
				r.add(key)
			}
		}
	}
}

// inputChanged reports whether a change is one that the controller acts on, so that an attempt which failed before it
// says nothing about the next. A nil record does not exist.
func (d Declaration) inputChanged(was, is trivet.Record) bool {
	if was == nil || is == nil {
		return true
	}
	w, i := was.Header(), is.Header()
	return w.UID != i.UID || w.Generation != i.Generation || d.Input != nil && d.Input(was) != d.Input(is)
}

// add queues a key: at once, or later where other heads go first.
func (r *runner) add(key string) {
	if rank := r.rank(key); rank > 0 {
		r.queue.AddAfter(key, time.Duration(rank)*rankDelay)
		return
	}
	r.queue.Add(key)
}

// rank returns how many heads go before this one for a key.
func (r *runner) rank(key string) int {
	if !r.declared.Ranked || r.Rank == nil {
		return 0
	}
	if h, ok := r.controller.(Holder); ok && h.Holds(key) {
		return 0
	}
	return r.Rank(key)
}

// process reconciles a key within the controller's scope.
func (r *runner) process(ctx context.Context, key string) (after time.Duration, err error) {
	defer recovered(&err)
	return r.controller.Reconcile(store.WithScope(ctx, r.scope), key)
}

// recovered converts a panic to an error.
func recovered(err *error) {
	switch v := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("panic: %w\n%s", v, debug.Stack())
	default:
		*err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
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
