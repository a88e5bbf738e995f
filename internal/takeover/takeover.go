// Package takeover lets one of two full heads go on alone, by itself, where the other one is lost: it makes sure by the
// BMC of that one's host that it is off, so that the two never serve at once. decide.go has the rules, fence.go and
// reach.go what they need to know, order.go the decision, which the next start of this head carries out: a recovery
// from its own data.
//
// Each second a head reads its own record and whether there is a leader. Where its record requests it, it reads the
// power state of the other head once a minute.
package takeover

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/wait"
)

// Config is what a Keeper needs.
type Config struct {
	Head  string // this one
	Heads func() []*trivet.Head
	// Quorum reports whether this head is connected to a leader.
	Quorum func() bool
	// Ping asks another head whether it is connected to a leader. It fails with ErrUnavailable where that one does not
	// respond.
	Ping func(ctx context.Context, h *trivet.Head) (quorum bool, err error)
	// BMC opens the BMC of another head, which has one.
	BMC func(ctx context.Context, h *trivet.Head) (bmc.Client, error)
	// Reach returns why a host does not respond.
	Reach func(ctx context.Context, host netip.Addr) error
	// Begin makes this head start again, to take over.
	Begin func(cause string) error
	Log   *slog.Logger

	confirm time.Duration // between two readings of a BMC; 0: the default
}

const (
	stepInterval  = time.Second
	checkInterval = time.Minute
	retryInterval = 15 * time.Second
	// checkTimeout bounds a check of what a takeover needs, fenceTimeout the time until the other head is off.
	checkTimeout = 20 * time.Second
	fenceTimeout = 90 * time.Second
	// confirmInterval is between two readings of a BMC that must both say that the other head is off.
	confirmInterval = 3 * time.Second
)

// Keeper takes over for its head.
type Keeper struct {
	cfg     Config
	silence silence
	next    time.Time // of a check, or an attempt

	mu    sync.Mutex
	facts *trivet.TakeoverFacts // guarded by mu
}

// New returns a Keeper that does nothing until Run.
func New(cfg Config) *Keeper {
	if cfg.confirm == 0 {
		cfg.confirm = confirmInterval
	}
	return &Keeper{cfg: cfg}
}

// Facts returns what is known of a takeover by this head; nil: it is not requested.
func (k *Keeper) Facts() *trivet.TakeoverFacts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.facts
}

// Run watches until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for wait.Sleep(ctx, stepInterval) == nil {
		k.step(ctx)
	}
}

func (k *Keeper) step(ctx context.Context) {
	silent := k.silence.observe(time.Now(), k.cfg.Quorum())
	p, err := pairOf(k.cfg.Heads(), k.cfg.Head)
	switch {
	case p.own == nil:
		k.set(nil, nil)
		k.next = time.Time{}
		return
	case err != nil:
		k.set(&p, err)
		return
	case silent > 0 && silent < p.own.Spec.Takeover.After.D(), time.Now().Before(k.next):
		return
	}
	if silent == 0 {
		k.next = time.Now().Add(wait.Jitter(checkInterval))
		k.set(&p, k.check(ctx, &p))
	} else {
		k.next = time.Now().Add(retryInterval)
		k.set(&p, k.takeOver(ctx, &p))
	}
	k.silence.resume(time.Now())
}

// set notes the outcome of a check or an attempt, and logs it where it is another one.
func (k *Keeper) set(p *pair, err error) {
	var facts *trivet.TakeoverFacts
	if p != nil {
		facts = &trivet.TakeoverFacts{After: p.own.Spec.Takeover.After}
		if p.other != nil {
			facts.From = p.other.Name
		}
		if err != nil {
			facts.Problem = err.Error()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if facts != nil && facts.Problem != "" && (k.facts == nil || k.facts.Problem != facts.Problem) {
		k.cfg.Log.Warn("this head cannot take over by itself", "from", facts.From, "error", facts.Problem)
	}
	k.facts = facts
}

// check returns why a takeover would not be possible now.
func (k *Keeper) check(ctx context.Context, p *pair) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := k.reach(ctx, p.own.Spec.Takeover.Reach); err != nil {
		return err
	}
	state, err := k.power(ctx, p.other)
	switch {
	case err != nil:
		return fmt.Errorf("the BMC of %s, at %s: %w", p.other.Name, p.other.Spec.BMC.Address, err)
	case state != bmc.On:
		return fmt.Errorf("%w: the BMC at %s reports %s, and %s runs: it is not that of its host", trivet.ErrConflict,
			p.other.Spec.BMC.Address, state, p.other.Name)
	}
	return nil
}

// takeOver makes sure that this head is connected and the other one is off, and then makes this one start again.
func (k *Keeper) takeOver(ctx context.Context, p *pair) error {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	if err := k.reach(ctx, p.own.Spec.Takeover.Reach); err != nil {
		return err
	}
	if err := k.checkLost(ctx, p); err != nil {
		return err
	}
	k.cfg.Log.Warn("there is no quorum, and the other head does not respond: powering it off by its BMC to take over",
		"from", p.other.Name, "bmc", p.other.Spec.BMC.Address, "after", p.own.Spec.Takeover.After)
	if err := k.fence(ctx, p.other); err != nil {
		return fmt.Errorf("%s could not be powered off by its BMC at %s; where it is off: trivet recover --from-survivor: %w",
			p.other.Name, p.other.Spec.BMC.Address, err)
	}
	if err := k.checkLost(ctx, p); err != nil {
		return err
	}
	cause := fmt.Sprintf("%s did not respond for %s, and its BMC at %s reports that it is off", p.other.Name,
		p.own.Spec.Takeover.After, p.other.Spec.BMC.Address)
	if err := k.cfg.Begin(cause); err != nil {
		return err
	}
	k.cfg.Log.Warn("taking over", "from", p.other.Name)
	return nil
}
