package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// PullConfig configures a Puller. Locate is required; other zero fields get defaults.
type PullConfig struct {
	// Locate returns the base URLs of heads that have a blob (see [Fetcher.Fetch]), the best first, and completes the
	// reference, which may lack Bytes and Chunks.
	Locate       func(ctx context.Context, ref trivet.BlobRef) (full trivet.BlobRef, urls []string, err error)
	Client       *http.Client  // nil: the package's client
	StallTimeout time.Duration // see Fetcher
	Pause        time.Duration // see Fetcher
	Timeout      time.Duration // ends a pull that all heads fail for so long; 0: 30 s
	Log          *slog.Logger
	Metrics      *Metrics
}

// Limits of pulls: running, of those in the background, and in total with those that wait.
const (
	maxRunning    = 4
	maxBackground = 2
	maxPulls      = 256
)

// Puller pulls blobs from other heads into a store, each once for all clients, in the order that readers request.
// Chunks are verified and served while the rest is pulled. An interrupted pull resumes, even after kill -9.
type Puller struct {
	store      *Store
	cfg        PullConfig
	running    chan struct{} // semaphore of all running pulls
	background chan struct{} // semaphore of running background pulls
	ctx        context.Context
	stop       context.CancelCauseFunc
	group      sync.WaitGroup

	mu     sync.Mutex
	pulls  map[Digest]*pull // guarded by mu
	closed bool             // guarded by mu
}

// NewPuller returns a Puller. Close it after use.
func NewPuller(s *Store, cfg PullConfig) *Puller {
	cfg.StallTimeout, cfg.Pause = cmp.Or(cfg.StallTimeout, 15*time.Second), cmp.Or(cfg.Pause, 250*time.Millisecond)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.Client, cfg.Log = cmp.Or(cfg.Client, defaultClient), cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
	p := &Puller{store: s, cfg: cfg, pulls: map[Digest]*pull{},
		running: make(chan struct{}, maxRunning), background: make(chan struct{}, maxBackground)}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Close stops all pulls and waits for them. Their chunks are kept.
func (p *Puller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop(fmt.Errorf("%w: this head is stopping", trivet.ErrUnavailable))
	p.group.Wait()
}

// Pull returns when the blob is in the store, on stable storage. The pull continues if ctx ends. Errors are
// [trivet.ErrNotFound] (no head has it), ErrUnavailable (no head that has it can be reached, or this disk is full), and
// ErrInvalid (the heads have other data than ref describes).
func (p *Puller) Pull(ctx context.Context, ref trivet.BlobRef) error {
	l, err := p.begin(ref)
	if l == nil {
		return err
	}
	return l.wait(ctx, (*pull).isOver)
}

// PullUrgent is Pull with priority over background pulls, for a client that waits.
func (p *Puller) PullUrgent(ctx context.Context, ref trivet.BlobRef) error {
	l, err := p.begin(ref)
	if l == nil {
		return err
	}
	l.setUrgent()
	return l.wait(ctx, (*pull).isOver)
}

// Progress returns how many bytes of a blob are on the disk, and whether it is complete.
func (p *Puller) Progress(d Digest) (bytes int64, complete bool) {
	if ref, err := p.store.Stat(d); err == nil {
		return ref.Bytes, true
	}
	p.mu.Lock()
	l := p.pulls[d]
	p.mu.Unlock()
	if l == nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got, false
}

// Delete removes a blob, complete or not. It returns [trivet.ErrNotFound] if there is nothing to remove.
func (p *Puller) Delete(ctx context.Context, d Digest) error {
	p.mu.Lock()
	l := p.pulls[d]
	p.mu.Unlock()
	if l != nil {
		l.stop(fmt.Errorf("%w: it was deleted", trivet.ErrNotFound))
		if err := l.wait(ctx, (*pull).isOver); ctx.Err() != nil {
			return err
		}
	}
	return p.store.Delete(d)
}

// DeleteUnused removes a blob, complete or not, as [Store.DeleteUnused] does. It returns [trivet.ErrConflict] for one
// that is being pulled.
func (p *Puller) DeleteUnused(d Digest, since time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulls[d] != nil {
		return &trivet.Error{Op: "delete blob", Name: d.String(),
			Err: fmt.Errorf("%w: it is being pulled", trivet.ErrConflict)}
	}
	return p.store.DeleteUnused(d, since)
}

// begin returns the pull of a blob, which it starts if there is none; nil, nil if the store has the blob.
func (p *Puller) begin(ref trivet.BlobRef) (*pull, error) {
	d, err := ParseDigest(ref.Digest)
	if err != nil {
		return nil, fmt.Errorf("pull blob: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.pulls[d]
	switch {
	case l != nil:
		return l, nil
	case p.store.Has(d):
		return nil, nil
	case p.closed || len(p.pulls) >= maxPulls:
		return nil, &trivet.Error{Op: "pull blob", Name: ref.Digest,
			Err: fmt.Errorf("%w: %d pulls are in progress", trivet.ErrUnavailable, len(p.pulls))}
	}
	l = newPull(p.ctx, ref, d)
	p.pulls[d] = l
	p.group.Go(func() {
		err := p.run(l)
		p.cfg.Metrics.ended(err)
		p.mu.Lock()
		delete(p.pulls, d)
		p.mu.Unlock()
		l.end(err)
	})
	return l, nil
}

// run runs a pull when the limits allow.
func (p *Puller) run(l *pull) (err error) {
	defer l.stop(context.Canceled)
	release := p.acquire(l)
	if release == nil {
		return context.Cause(l.ctx)
	}
	defer release()
	err = p.pull(l)
	var terr *trivet.Error
	if err == nil || errors.As(err, &terr) {
		return err
	}
	return &trivet.Error{Op: "pull blob", Name: l.digest.String(), Err: err}
}

// acquire waits until the pull may run; urgent pulls need no background slot. It returns nil if the pull was stopped.
func (p *Puller) acquire(l *pull) (release func()) {
	releaseBackground := func() {}
	select {
	case p.background <- struct{}{}:
		releaseBackground = func() { <-p.background }
	case <-l.urgent:
	case <-l.ctx.Done():
		return nil
	}
	select {
	case p.running <- struct{}{}:
		return func() {
			<-p.running
			releaseBackground()
		}
	case <-l.ctx.Done():
		releaseBackground()
		return nil
	}
}
