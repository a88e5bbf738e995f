// Package takeover lets one of two full heads go on alone, by itself, where the other one is lost: it makes sure by the
// BMC of that one's host that it is off, so that the two never serve at once. decide.go has the rules, fence.go and
// reach.go what they need to know, order.go the decision, which the next start of this head carries out: a recovery
// from its own data.
//
// Each second a head reads its own record, and when it was last connected to the others. Where its record requests it,
// it reads the power state of the other head once a minute.
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
	// Current returns when this head last had all that was acknowledged; zero: not since it started.
	Current func() time.Time
	// LastHeard returns when another head last responded, or refused; zero: not since this one started.
	LastHeard func(head string) time.Time
	// Ping asks another head whether it is connected to a leader. responds is also true where it fails with anything
	// but silence.
	Ping func(ctx context.Context, h *trivet.Head) (responds, quorum bool, err error)
	// BMC opens the BMC of another head, which has one.
	BMC func(ctx context.Context, h *trivet.Head) (bmc.Client, error)
	// Reach returns why a host does not respond.
	Reach func(ctx context.Context, host netip.Addr) error
	// Ready returns why this head could not recover the cluster from its own data.
	Ready func() error
	// Begin makes this head start again, to take over.
	Begin func(cause string) error
	Log   *slog.Logger
}

const (
	stepInterval  = time.Second
	checkInterval = time.Minute
	retryInterval = 15 * time.Second
	// checkTimeout bounds a check of what a takeover needs, fenceTimeout the time until the other head is off.
	checkTimeout = time.Minute
	fenceTimeout = 3 * time.Minute
	// powerTimeout bounds the command to a BMC, with the last check before it.
	powerTimeout = 20 * time.Second
)

// Keeper takes over for its head.
type Keeper struct {
	cfg     Config
	silence silence
	check   time.Time // the next one
	attempt time.Time // likewise
	off     bool      // the other head was powered off since there was a quorum
	failed  int       // commands to power it off since then whose outcome is not known

	mu    sync.Mutex
	facts *trivet.TakeoverFacts // guarded by mu
}

// New returns a Keeper that does nothing until Run.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg} }

// Facts returns what is known of a takeover by this head; nil: it is not requested.
func (k *Keeper) Facts() *trivet.TakeoverFacts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.facts
}

// Run watches until ctx ends, or this head is to take over.
func (k *Keeper) Run(ctx context.Context) {
	for began := false; !began && wait.Sleep(ctx, stepInterval) == nil; {
		began = k.step(ctx)
	}
}

// step reports whether this head is to take over.
func (k *Keeper) step(ctx context.Context) (began bool) {
	now := time.Now()
	k.silence.observe(now)
	p, err := pairOf(k.cfg.Heads(), k.cfg.Head)
	switch {
	case p.own == nil:
		k.set(nil, nil)
		k.check = time.Time{}
		return false
	case err != nil:
		k.set(&p, err)
		return false
	case k.cfg.Quorum():
		k.off, k.failed = false, 0
		k.at(&k.check, checkInterval, func() { k.set(&p, k.possible(ctx, &p)) })
		return false
	}
	k.check = time.Time{} // once there is a quorum again
	due, err := k.due(now, &p)
	switch {
	case err != nil:
		k.set(&p, err)
	case due:
		k.at(&k.attempt, retryInterval, func() {
			err := k.takeOver(ctx, &p)
			k.set(&p, err)
			began = err == nil
		})
	}
	return began
}

// at does something when it is due, and then after the given interval.
func (k *Keeper) at(due *time.Time, interval time.Duration, do func()) {
	if time.Now().Before(*due) {
		return
	}
	began := time.Now()
	do()
	now := time.Now()
	*due = now.Add(interval)
	if k.silence.last = now; now.Sub(began) > fenceTimeout+maxPause { // what is done is bounded: the process did not run
		k.silence.resumed = now
	}
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

// ready returns why this head could not go on alone.
func (k *Keeper) ready(ctx context.Context, p *pair) error {
	if err := k.reach(ctx, p.own.Spec.Takeover.Reach); err != nil {
		return err
	}
	return k.cfg.Ready()
}

// possible returns why a takeover would not be possible now.
func (k *Keeper) possible(ctx context.Context, p *pair) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if err := k.ready(ctx, p); err != nil {
		return err
	}
	state, err := k.power(ctx, p.other)
	if err != nil {
		return fmt.Errorf("the BMC of %s, at %s: %w", p.other.Name, p.other.Spec.BMC.Address, err)
	}
	if responds, _, _ := k.cfg.Ping(ctx, p.other); responds && state != bmc.On {
		return fmt.Errorf("%w: the BMC at %s reports %s, and %s runs: it is not that of its host", trivet.ErrConflict,
			p.other.Spec.BMC.Address, state, p.other.Name)
	}
	return nil
}

// takeOver makes sure that this head is connected and the other one is off, and then makes this one start again.
func (k *Keeper) takeOver(ctx context.Context, p *pair) error {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	if err := k.ready(ctx, p); err != nil {
		return err
	}
	if err := k.fence(ctx, p); err != nil {
		return fmt.Errorf("%s is not known to be off, by its BMC at %s; where it is: trivet recover --from-survivor: %w",
			p.other.Name, p.other.Spec.BMC.Address, err)
	}
	cause := fmt.Sprintf("%s was last heard at %s, and its BMC at %s reports that it is off", p.other.Name,
		clock(k.cfg.LastHeard(p.other.Name)), p.other.Spec.BMC.Address)
	if err := ctx.Err(); err != nil { // this process was paused since
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	if err := k.cfg.Begin(cause); err != nil {
		return err
	}
	k.cfg.Log.Warn("taking over", "from", p.other.Name)
	return nil
}
