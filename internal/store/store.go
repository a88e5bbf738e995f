package store

import (
	"cmp"
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
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/wait"
)

// Options configure a store.
type Options struct {
	// Head is the name of this head.
	Head string
	// Cipher encrypts and authenticates the stored values.
	Cipher *keyring.Cipher
	Logger *slog.Logger
	// Metrics is where the store's metrics are registered; nil: nowhere.
	Metrics prometheus.Registerer
	// Term returns as soon as there is a leader, with a channel that is closed when the next leader is elected:
	// responses of the former one are no longer awaited. An error is an ErrUnavailable: there is no leader, and
	// nothing was sent. nil: there always is a leader.
	Term func(context.Context) (over <-chan struct{}, err error)
	// Admit returns an error, after which nothing was written, if a transaction that adds records, or makes all records
	// together larger by some bytes, does not fit into the store. nil: all fit.
	Admit func(added int, growth int64) error
	// Now is the clock of Created; nil: time.Now.
	Now func() time.Time
	// AttemptTimeout bounds one attempt of a transaction; 0: 1 s. Timeout bounds all attempts if the caller's context
	// has no deadline; 0: 5 s.
	AttemptTimeout, Timeout time.Duration
}

// Store is one head's access to the records of a cluster.
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
	// refusals are the values that this head's copy refuses.
	refusals refusals
	// sealed counts the values of this head's copy by the keys that they are encrypted with.
	sealed sealedCounts
	// own are the values that this head is writing.
	own     ownWrites
	defects defects

	started bool
	stop    context.CancelFunc
	done    chan struct{} // closed with the store
	volume  volume
	replay  replayLimit
	replays chan struct{} // one for each watcher that reads from etcd
	running sync.WaitGroup
}

// New returns a store over an etcd client. Create its tables next, then start it.
func New(client *clientv3.Client, opts Options) *Store {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Term == nil {
		opts.Term = func(context.Context) (<-chan struct{}, error) { return nil, nil }
	}
	if opts.Admit == nil {
		opts.Admit = func(int, int64) error { return nil }
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.AttemptTimeout = cmp.Or(opts.AttemptTimeout, time.Second)
	opts.Timeout = cmp.Or(opts.Timeout, 5*time.Second)
	s := &Store{
		client: client, opts: opts, log: opts.Logger, kinds: map[string]*kindInfo{},
		history: history{evicted: map[string]int64{}, waiting: map[*Watcher]struct{}{}},
		pending: pending{txs: map[txID]*outcome{}}, own: ownWrites{byKey: map[string]*ownWrite{}},
		metrics: newMetrics(opts.Metrics), done: make(chan struct{}),
		replay:  replayLimit{maxReplay, maxUnknownReplay, maxReplayBytes},
		replays: make(chan struct{}, maxReplays),
	}
	s.refusals = refusals{logger: s.log, metrics: s.metrics}
	s.sealed = sealedCounts{metrics: s.metrics, values: map[keyring.ID]int{}}
	return s
}

// Start loads the local copy from this head's member, with or without a leader, and follows the store from then on.
func (s *Store) Start(ctx context.Context) error {
	s.started = true
	first, err := s.load(ctx)
	if err != nil {
		return err
	}
	s.current.Store(first)
	s.metrics.revision.Set(float64(first.rev))
	s.history.reset(first.rev)
	s.volume.reset(first.rev)
	s.pending.reached(first.rev)
	ctx, s.stop = context.WithCancel(context.Background())
	s.running.Go(func() { s.feed(ctx) })
	return nil
}

// Close stops the feed. It does not close the etcd client.
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

// Revision returns the store's revision that local reads see.
func (s *Store) Revision() int64 { return s.snapshot().rev }

// WaitRevision returns when local reads see a revision. It sends no request: if the revision never arrives, it waits
// until ctx ends.
func (s *Store) WaitRevision(ctx context.Context, revision int64) error {
	return s.pending.wait(ctx, revision)
}

// Sync returns when local reads see every write that was acknowledged before the call, by any head. It needs a quorum.
func (s *Store) Sync(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if err := s.sync(ctx); err != nil {
		return noQuorum("sync", err)
	}
	return nil
}

func (s *Store) sync(ctx context.Context) error {
	for {
		var resp *clientv3.GetResponse
		err := s.attempt(ctx, func(ctx context.Context) (err error) {
			resp, err = s.client.Get(ctx, prefix, clientv3.WithKeysOnly())
			return err
		})
		switch {
		case err == nil:
			return s.pending.wait(ctx, resp.Header.Revision)
		case ctx.Err() != nil || errors.Is(err, trivet.ErrUnavailable):
			return err
		}
		_ = wait.Sleep(ctx, retryDelay)
	}
}

// retryDelay is the delay before a failed call is retried.
const retryDelay = 20 * time.Millisecond

// attempt makes a call when there is a leader. It waits for the response until there is another leader, and for
// Options.AttemptTimeout at most.
func (s *Store) attempt(ctx context.Context, call func(context.Context) error) error {
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

// bounded returns ctx with a deadline, if it has none.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.opts.Timeout)
}
