// Package maintenance keeps the store of this head within its quota: it drops history early when the store fills, makes
// the file of this head's member smaller when much of it is unused, and reports both. Each head maintains its own
// member, one at a time: a lease decides which.
package maintenance

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/wait"
)

// Member is the part of [cluster.Member] that is used here.
type Member interface {
	Usage() cluster.Usage
	Compact(ctx context.Context, revision int64) error
	Defragment() error
	ClearAlarms(ctx context.Context) error
}

// Config is what a Keeper needs.
type Config struct {
	Head   string
	Member Member
	Tables *state.Tables
	// Others returns all other heads of the cluster, with witnesses, and Statuses what is known of them.
	Others   func() map[string]string
	Statuses func() map[string]peer.Status
	// Interval is the time between two checks; 0: DefaultInterval.
	Interval time.Duration
	Log      *slog.Logger
}

// DefaultInterval is the time between two checks. What was deleted from a full store is free after two of them.
const DefaultInterval = 30 * time.Second

// Keeper maintains this head's member of the store.
type Keeper struct {
	Config
	last  int64 // the store's revision at the last check
	level level // as last reported
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	return &Keeper{Config: cfg}
}

// Run maintains the member until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { k.repeat(ctx, "check the store", k.untilCheck, k.check) })
	running.Go(func() { k.repeat(ctx, "defragment the store", k.untilDefragment, k.defragment) })
	running.Wait()
}

// fullChecks is how many times as often a full store is checked: each change of a record leaves its old value, and what
// may be written then must not use up the reserve. A watch that is interrupted for longer must list again.
const fullChecks = 3

func (k *Keeper) untilCheck() time.Duration {
	if k.level == full {
		return k.Interval / fullChecks
	}
	return k.Interval
}

func (k *Keeper) untilDefragment() time.Duration { return k.Interval }

func (k *Keeper) repeat(ctx context.Context, what string, until func() time.Duration,
	do func(context.Context) error) {
	for wait.Sleep(ctx, until()) == nil {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			k.Log.Warn("cannot "+what+" now; it is retried", "error", err)
		}
	}
}

// leaseName and leaseTTL are those of the lease of the head that defragments its member. Meanwhile it cannot renew the
// lease, as its member has no part in writes.
const (
	leaseName = "defragment"
	leaseTTL  = 10 * time.Minute
)

// stepTimeout bounds the steps of one check.
const stepTimeout = 5 * time.Second

// check drops history if that is due, and reports the level.
func (k *Keeper) check(ctx context.Context) error {
	step, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	now := k.Tables.Store.Revision()
	level, compact := decide(k.Member.Usage(), k.last, now)
	k.last = now
	if err := k.Member.ClearAlarms(step); err != nil {
		return err
	}
	if compact > 0 {
		if err := k.Member.Compact(step, compact); err != nil {
			return err
		}
	}
	return k.report(step, level)
}

// defragment defragments this head's member, if that is due, when no other head does so and no other member is down:
// writes need them meanwhile.
func (k *Keeper) defragment(ctx context.Context) error {
	if !fragmented(k.Member.Usage()) {
		return nil
	}
	return k.Tables.Store.WithLease(ctx, leaseName, leaseTTL, func(context.Context, *store.Lease) error {
		if err := othersUp(k.Others(), k.Statuses()); err != nil {
			return err
		}
		before := k.Member.Usage()
		if err := k.Member.Defragment(); err != nil {
			return err
		}
		k.Log.Info("defragmented the store of this head", "before", before.File, "after", k.Member.Usage().File)
		return nil
	})
}

// othersUp returns an error unless all other members take part in writes.
func othersUp(others map[string]string, statuses map[string]peer.Status) error {
	for name := range others {
		s, ok := statuses[name]
		if !ok || s.Err != nil || s.Leader == "" || s.Lag > peer.MaxLag {
			return fmt.Errorf("%w: the store is not defragmented while %s is down or behind", trivet.ErrUnavailable,
				name)
		}
	}
	return nil
}
