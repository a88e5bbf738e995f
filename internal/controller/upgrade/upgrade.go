// Package upgrade replaces the program of all heads by another version: every head gets the program first, then one
// after the other starts again with it, while all is well, and goes back where it does not work.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/program"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Programs is the programs of this head.
type Programs interface {
	// Report returns what this head reports of the upgrade, and stages the new program where the head does not have it.
	Report(ctx context.Context, u *trivet.Upgrade) trivet.HeadProgram
	// Follow returns what makes the next start of this head follow the upgrade, where that names the head; nil: nothing is
	// to be done.
	Follow(u *trivet.Upgrade, head string, p *trivet.HeadProgram) func() error
	// Confirm records that the program of this process works.
	Confirm() error
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "upgrade",
	Reads:   []trivet.Kind{"Key"},
	Writes:  []trivet.Kind{"Upgrade", "Head", "Site", "Event"},
	Watches: []trivet.Kind{"Upgrade", "Head"},
	Input:   input,
	Workers: 1,
}

// input is what the steps of an upgrade rest on.
func input(r trivet.Record) any {
	switch r := r.(type) {
	case *trivet.Head:
		if r.Status.Program != nil {
			return *r.Status.Program
		}
	case *trivet.Upgrade:
		return string(r.Status.Phase) + r.Status.Head
	}
	return nil
}

// Config is what the controller needs.
type Config struct {
	Head     string
	Programs Programs
	Tables   *state.Tables
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
	// Leader returns the name of the head of the store's leader.
	Leader func() string
	// Well reports whether a member responds, has caught up and knows a leader, and has done so for this long since the
	// start that its record has.
	Well func(*trivet.Head, time.Duration) bool
	// Broken returns the invariants of trivet status that do not hold.
	Broken func(context.Context) ([]string, error)
	// Started is when this process started: its head's record has that once it is registered.
	Started time.Time
	// Restart makes this head start again. It returns at once.
	Restart func()
	Log     *slog.Logger
}

// Controller upgrades heads. It implements [reconcile.Controller]; its key is the name of the record.
//
// One head at a time is named in the record, by a transaction that compares the records of all heads. Only that one
// starts again. Each head may be the one that names the next.
type Controller struct {
	Config
	now     func() time.Time
	created time.Time

	confirmed     bool      // this process' program
	leaving       bool      // this head starts again
	seen          int64     // the revision of the record that was seen last
	seenSince     time.Time // when it was first seen
	progress      progress  // of the upgrade, as it was seen last
	progressSince time.Time // when it was first seen
	badSince      time.Time // since when something is not well that may be due to the new program; zero: all is
	goodSince     time.Time // since when all is well again
}

// progress is what changes where an upgrade makes progress.
type progress struct {
	run    int64
	phase  trivet.UpgradePhase
	head   string
	paused bool
	runNew int // heads that run the new program
}

// New returns the controller.
func New(cfg Config) *Controller { return &Controller{Config: cfg, now: time.Now, created: time.Now()} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return []string{trivet.UpgradeName} }

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(*store.Event) []string { return []string{trivet.UpgradeName} }

const (
	// again is the delay before the next step, where there is one.
	again = time.Millisecond
	// pollInterval is how often a head checks an upgrade that is in progress.
	pollInterval = time.Second
	// stallTime is how long a head leaves an upgrade to each head that ranks before it, while its record does not
	// change.
	stallTime = 15 * time.Second
	// stableTime is how long each head must be well before the next one starts again. It is longer than what a program
	// takes to be confirmed.
	stableTime = program.ConfirmTime + 2*time.Second
	// settleTime is how long no head is named to go back after the last change: one that was named before may be about to
	// start again, and respond still. A head that was named to go back, and does not respond, is left out then.
	settleTime = 15 * time.Second
	// stuckTime is how long an upgrade that has begun to replace programs waits for a head that starts again, or for all
	// to be well. Then the heads go back. recoveredTime is how long all must be well until that is forgotten.
	stuckTime, recoveredTime = 10 * time.Minute, time.Minute
)

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, _ string) (after time.Duration, err error) {
	if c.leaving {
		return 0, nil
	}
	u, err := c.Tables.Upgrades.Get(trivet.UpgradeName)
	if errors.Is(err, trivet.ErrNotFound) {
		u, err = &trivet.Upgrade{}, nil
	}
	if err != nil || !c.registered() {
		return pollInterval, err
	}
	c.sinceProgress(u)
	pending := false
	if u.Spec.Run > 0 && u.Spec.Run == u.Status.Run {
		pending, err = c.keepOwn(ctx, u)
	}
	if err == nil && !c.leaving { // its record has what it runs
		err = c.confirm()
	}
	if pending || !c.confirmed || u.InProgress() {
		after = pollInterval
	}
	if c.leaving || !u.InProgress() || c.unchanged(u) < time.Duration(c.Rank(trivet.UpgradeName))*stallTime {
		return after, err
	}
	after, failed := c.advance(ctx, u)
	return after, errors.Join(err, failed)
}

// confirm confirms the program of this process when it has worked for a while.
func (c *Controller) confirm() error {
	if c.confirmed || c.now().Sub(c.created) < program.ConfirmTime {
		return nil
	}
	err := c.Programs.Confirm()
	c.confirmed = err == nil
	return err
}

// registered reports whether this head's record is of this process.
func (c *Controller) registered() bool {
	h, err := c.Tables.Heads.Get(c.Head)
	return err == nil && h.Status.Started.Equal(c.Started)
}

// sinceProgress returns for how long this head has seen no progress of the upgrade.
func (c *Controller) sinceProgress(u *trivet.Upgrade) time.Duration {
	p := progress{run: u.Spec.Run, phase: u.Status.Phase, head: u.Status.Head, paused: u.Spec.Paused}
	heads, _ := c.members()
	for _, h := range heads {
		if u.RunsNew(h) {
			p.runNew++
		}
	}
	if p != c.progress {
		c.progress, c.progressSince = p, c.now()
	}
	return c.now().Sub(c.progressSince)
}

// unchanged returns for how long this head has seen the record as it is.
func (c *Controller) unchanged(u *trivet.Upgrade) time.Duration {
	if u.Revision != c.seen {
		c.seen, c.seenSince = u.Revision, c.now()
	}
	return c.now().Sub(c.seenSince)
}

// keepOwn reports this head's program, and starts the head again with another one where the record names it, or where
// the others went back without it. It does so while all others are well only: that may have changed since. pending: it
// does not yet.
func (c *Controller) keepOwn(ctx context.Context, u *trivet.Upgrade) (pending bool, err error) {
	own := c.Programs.Report(ctx, u)
	if err := c.publish(ctx, &own); err != nil {
		return false, err
	}
	follow := c.Programs.Follow(u, c.Head, &own)
	if follow == nil {
		return false, nil
	}
	reason := program.MayStart(u.Status.Phase, c.others(c.Head))
	if u.Status.Phase == trivet.UpgradeReverted && reason == "" && c.caRotates() {
		reason = "waits until the CA is rotated"
	}
	if _, removing := c.members(); removing != "" {
		reason = fmt.Sprintf("waits until %s is removed", removing)
	}
	if reason != "" {
		c.Log.Debug("this head is to start again", "reason", reason)
		return true, nil
	}
	return false, c.startAgain(ctx, u, follow)
}

// caRotates reports whether a rotation of the CA has begun, which starts heads again, too.
func (c *Controller) caRotates() bool {
	k, err := c.Tables.Keys.Get(trivet.CAKey)
	return err == nil && k.Status.Phase != ""
}

// others returns the members beside one, as this head sees them.
func (c *Controller) others(than string) (all []program.Other) {
	heads, _ := c.members()
	for _, h := range heads {
		if h.Name != than {
			all = append(all, program.Other{Name: h.Name, Responds: c.well(h, 0), Stable: c.well(h, stableTime)})
		}
	}
	return all
}

// well reports whether a head, or this one, has been well for this long.
func (c *Controller) well(h *trivet.Head, d time.Duration) bool {
	if h.Name == c.Head {
		return c.now().Sub(c.created) >= d
	}
	return c.Well(h, d)
}

// startAgain selects another program and starts the head again, if a quorum has the record as this head does.
func (c *Controller) startAgain(ctx context.Context, u *trivet.Upgrade, follow func() error) error {
	err := c.update(ctx, func(tx *store.Tx) error {
		now, err := c.Tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		if err == nil && (now.Status.Head != u.Status.Head || now.Status.Phase != u.Status.Phase ||
			now.Spec.Run != u.Spec.Run || now.Spec.Rollback != u.Spec.Rollback) {
			err = fmt.Errorf("%w: the record has changed", trivet.ErrConflict)
		}
		return err
	})
	if err == nil {
		err = follow()
	}
	if err != nil {
		return err
	}
	c.leaving = true
	c.Log.Info("this head starts again with another program", "phase", u.Status.Phase, "version", u.Spec.Version)
	c.Restart()
	return nil
}

// publish writes what this head reports into its record.
func (c *Controller) publish(ctx context.Context, own *trivet.HeadProgram) error {
	same := func(h *trivet.Head) bool { return h.Status.Program != nil && *h.Status.Program == *own }
	h, err := c.Tables.Heads.Get(c.Head)
	if err != nil || same(h) {
		return nil
	}
	return c.update(ctx, func(tx *store.Tx) error {
		h, err := c.Tables.Heads.In(tx).Get(c.Head)
		switch {
		case err != nil:
			return err
		case same(h):
			return errUnchanged
		}
		h.Status.Program = own
		return c.Tables.Heads.In(tx).Put(h)
	})
}

// advance takes the next step.
func (c *Controller) advance(ctx context.Context, u *trivet.Upgrade) (after time.Duration, err error) {
	t, next, err := c.choose(ctx, u)
	if err != nil || next == none {
		return pollInterval, err
	}
	after = again
	if t.do == waiting {
		after = pollInterval
	}
	return after, c.update(ctx, func(tx *store.Tx) error {
		u, err := c.Tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		if err != nil {
			return err
		}
		heads, removing, err := c.membersIn(tx)
		if err != nil {
			return err
		}
		if now, _ := decide(u, heads); now != next || removing && t.do == grant {
			return errUnchanged
		}
		if err := c.take(tx, u, heads, &t); err != nil {
			return err
		}
		return c.Tables.Upgrades.In(tx).Put(u)
	})
}

// members returns the members of the cluster by this head's copy, and the name of one that is being removed.
func (c *Controller) members() (heads []*trivet.Head, removing string) {
	for h := range c.Tables.Heads.AllShared() {
		switch {
		case h.Status.State == trivet.HeadRemoved:
		case h.Spec.Remove:
			removing = h.Name
		default:
			heads = append(heads, h)
		}
	}
	return heads, removing
}

// membersIn returns the members of the cluster, which the commit compares.
func (c *Controller) membersIn(tx *store.Tx) (heads []*trivet.Head, removing bool, err error) {
	for _, listed := range c.Tables.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		h, err := c.Tables.Heads.In(tx).Get(listed.Name)
		switch {
		case err != nil:
			return nil, false, err
		case h.Spec.Remove:
			removing = true
		default:
			heads = append(heads, h)
		}
	}
	return heads, removing, nil
}

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("nothing to write")

func (c *Controller) update(ctx context.Context, do func(tx *store.Tx) error) error {
	if _, err := c.Tables.Store.Update(ctx, do); err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}
