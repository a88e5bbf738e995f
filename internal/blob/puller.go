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

// PullConfig is where a Puller gets what its store has not. Locate must be set; what else is zero gets its default.
type PullConfig struct {
	// Locate says which heads to ask for a blob, by the base URLs of their doors (see [Fetcher.Fetch]), the best first, and
	// completes the reference, which may miss Bytes and Chunks.
	Locate       func(ctx context.Context, ref trivet.BlobRef) (full trivet.BlobRef, urls []string, err error)
	Client       *http.Client  // nil: one of its own
	StallTimeout time.Duration // see Fetcher
	Pause        time.Duration // see Fetcher
	Timeout      time.Duration // a pull that no head continues for so long ends; 0: 30 s
	Log          *slog.Logger
	Metrics      *Metrics
}

// Bounds of pulls: how many run at a time, how many of them nobody waits for, and how many there may be in all.
const (
	runningPulls = 4
	patientPulls = 2
	maxPulls     = 256
)

// Puller gets blobs from other heads into a store: each once, however many want it, and in the order that its readers want.
// What comes is checked chunk by chunk and given to readers while the rest comes. A pull that broke off, be it by kill -9,
// goes on with what it has.
type Puller struct {
	store   *Store
	cfg     PullConfig
	running chan struct{} // holds one for each pull that runs
	patient chan struct{} // and for each of them that nobody waits for
	ctx     context.Context
	stop    context.CancelCauseFunc
	group   sync.WaitGroup

	mu     sync.Mutex
	pulls  map[Digest]*pull // guarded by mu
	closed bool             // guarded by mu
}

// NewPuller makes one, which Close ends.
func NewPuller(s *Store, cfg PullConfig) *Puller {
	cfg.StallTimeout, cfg.Pause = cmp.Or(cfg.StallTimeout, 15*time.Second), cmp.Or(cfg.Pause, 250*time.Millisecond)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.Client, cfg.Log = cmp.Or(cfg.Client, ownClient), cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Metrics = cmp.Or(cfg.Metrics, NewMetrics(nil))
	p := &Puller{store: s, cfg: cfg, pulls: map[Digest]*pull{},
		running: make(chan struct{}, runningPulls), patient: make(chan struct{}, patientPulls)}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Close ends all pulls and waits for them. What they got is kept for the next time.
func (p *Puller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop(fmt.Errorf("%w: this head is stopping", trivet.ErrUnavailable))
	p.group.Wait()
}

// Pull returns when the blob is here, on stable storage, or why it cannot be had now. The pull goes on when ctx ends. Errors
// are [trivet.ErrNotFound] (no head has it), ErrUnavailable (no head that has it can be reached, or this disk is full),
// ErrInvalid (what the heads have is not what ref says).
func (p *Puller) Pull(ctx context.Context, ref trivet.BlobRef) error {
	l, err := p.begin(ref)
	if l == nil {
		return err
	}
	return l.wait(ctx, (*pull).isOver)
}

// PullUrgent is Pull for somebody who waits: it goes before what nobody waits for.
func (p *Puller) PullUrgent(ctx context.Context, ref trivet.BlobRef) error {
	l, err := p.begin(ref)
	if l == nil {
		return err
	}
	l.hasten()
	return l.wait(ctx, (*pull).isOver)
}

// Progress is how many bytes of a blob are here; all of them when there is no pull of it and it is here.
func (p *Puller) Progress(d Digest) (bytes int64, here bool) {
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

// Delete removes a blob, whole or not. [trivet.ErrNotFound] when nothing of it is here.
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

// begin gives the pull of a blob, which it starts if there is none; nil, nil when the blob is here.
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
		return nil, &trivet.Error{Op: "pull blob", Name: ref.Digest, Err: fmt.Errorf("%w: %d pulls are under way", trivet.ErrUnavailable, len(p.pulls))}
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

// run waits for the pull's turn and does it.
func (p *Puller) run(l *pull) (err error) {
	defer l.stop(context.Canceled)
	leave := p.enter(l)
	if leave == nil {
		return context.Cause(l.ctx)
	}
	defer leave()
	err = p.pull(l)
	var told *trivet.Error
	if err == nil || errors.As(err, &told) {
		return err
	}
	return &trivet.Error{Op: "pull blob", Name: l.digest.String(), Err: err}
}

// enter waits for room among the pulls; one that somebody waits for goes before the patient ones. It gives what leaves the
// room again, or nil when the pull has been stopped.
func (p *Puller) enter(l *pull) (leave func()) {
	leavePatient := func() {}
	select {
	case p.patient <- struct{}{}:
		leavePatient = func() { <-p.patient }
	case <-l.urgent:
	case <-l.ctx.Done():
		return nil
	}
	select {
	case p.running <- struct{}{}:
		return func() { <-p.running; leavePatient() }
	case <-l.ctx.Done():
		leavePatient()
		return nil
	}
}
