package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/singleflight"

	"github.com/trivet-project/trivet"
)

// Options are how a store is run.
type Options struct {
	// Head names the head whose store this is.
	Head   string
	Logger *slog.Logger
	// Metrics is where the store's are registered; nil: nowhere.
	Metrics prometheus.Registerer
	// Term returns when writes can be served, and at once if they can be already, with a channel that is closed when the next
	// leader is there: what the former one has not answered is not waited for any longer. An error is an ErrUnavailable: there
	// is no leader, and nothing was sent. nil: there always is one.
	Term func(context.Context) (over <-chan struct{}, err error)
	// Now is the clock of Created; nil: time.Now.
	Now func() time.Time
	// AttemptTimeout bounds one try of a transaction, Timeout all of them where the caller's context has no deadline; 0: 1 s and 5 s.
	AttemptTimeout, Timeout time.Duration
}

// Store is the records of a cluster, as one head sees and changes them.
type Store struct {
	client  *clientv3.Client
	opts    Options
	log     *slog.Logger
	kinds   map[string]*kindInfo // by kind as in keys; constant after Start
	current atomic.Pointer[snapshot]
	history history
	pending pending
	guards  singleflight.Group
	metrics *metrics
	defects defects

	started bool
	stop    context.CancelFunc
	done    chan struct{} // closed with the store
	running sync.WaitGroup
}

// New gives a store over an etcd. Its tables are made next, then it is started.
func New(client *clientv3.Client, opts Options) *Store {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Term == nil {
		opts.Term = func(context.Context) (<-chan struct{}, error) { return nil, nil }
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	orDefault(&opts.AttemptTimeout, time.Second)
	orDefault(&opts.Timeout, 5*time.Second)
	return &Store{
		client: client, opts: opts, log: opts.Logger, kinds: map[string]*kindInfo{},
		history: history{evicted: map[string]int64{}, waiting: map[*Watcher]struct{}{}},
		pending: pending{txs: map[string]*outcome{}},
		metrics: newMetrics(opts.Metrics), done: make(chan struct{}),
	}
}

func orDefault(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}

// Start loads the local copy from this head's member, with or without a leader, and follows the store from then on.
func (s *Store) Start(ctx context.Context) error {
	s.started = true
	first, err := s.load(ctx)
	if err != nil {
		return err
	}
	s.current.Store(first)
	s.history.reset(first.rev)
	s.pending.reached(first.rev)
	ctx, s.stop = context.WithCancel(context.Background())
	s.running.Go(func() { s.feed(ctx) })
	return nil
}

// Close ends the feed. The etcd client stays its owner's.
func (s *Store) Close() {
	if s.stop == nil {
		return
	}
	s.stop()
	s.running.Wait()
	close(s.done)
	s.stop = nil
}

func (s *Store) snapshot() *snapshot { return s.current.Load() }

// Revision is the store's revision that local reads see.
func (s *Store) Revision() int64 { return s.snapshot().rev }

// WaitRevision returns when local reads see a revision. Nothing is asked of the others: one that the cluster does not have, or that does
// not get here, is waited for until ctx ends.
func (s *Store) WaitRevision(ctx context.Context, revision int64) error {
	return s.pending.wait(ctx, revision)
}

// Sync returns when local reads see all that was written before the call, by whichever head. It needs a quorum.
func (s *Store) Sync(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if err := s.fresh(ctx); err != nil {
		return noQuorum("read afresh", err)
	}
	return nil
}

func (s *Store) fresh(ctx context.Context) error {
	for {
		var resp *clientv3.GetResponse
		err := s.try(ctx, func(ctx context.Context) (err error) {
			resp, err = s.client.Get(ctx, prefix, clientv3.WithKeysOnly())
			return err
		})
		switch {
		case err == nil:
			return s.pending.wait(ctx, resp.Header.Revision)
		case ctx.Err() != nil || errors.Is(err, trivet.ErrUnavailable):
			return err
		}
		pause(ctx, retry)
	}
}

// retry is how long is waited before a call that failed is made again.
const retry = 20 * time.Millisecond

// try makes a call when there is a leader, and waits for its answer while that one leads, and for Options.Try at most.
func (s *Store) try(ctx context.Context, call func(context.Context) error) error {
	over, err := s.opts.Term(ctx)
	if err != nil {
		return &trivet.Error{Op: "find the leader", Err: err, Hint: hintLeader}
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.AttemptTimeout)
	defer cancel()
	go func() { // until the call has ended
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return call(ctx)
}

// bounded gives ctx a deadline if it has none.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.opts.Timeout)
}
