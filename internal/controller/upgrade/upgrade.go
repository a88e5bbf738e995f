// Package upgrade replaces the program of all heads by another version: every head gets the program first, then one
// after the other starts again with it, while all is well, and goes back where it does not work.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
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

	confirmed bool      // this process' program
	seen      int64     // the revision of the record that was seen last
	seenSince time.Time // when it was first seen
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
	// stableTime is how long each head must be well before the next one starts again.
	stableTime = 3 * time.Second
	// stuckTime is how long an upgrade that has begun to replace programs waits for a head that starts again, or for all
	// to be well. Then the heads go back.
	stuckTime = 10 * time.Minute
)

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, _ string) (after time.Duration, err error) {
	if err := c.confirm(); err != nil {
		return pollInterval, err
	}
	u, err := c.Tables.Upgrades.Get(trivet.UpgradeName)
	if errors.Is(err, trivet.ErrNotFound) || err == nil && !u.InProgress() {
		return c.unconfirmed(), nil
	}
	if err != nil {
		return 0, err
	}
	if u.Spec.Run == u.Status.Run {
		err = c.keepOwn(ctx, u)
	}
	if c.unchanged(u) >= time.Duration(c.Rank(trivet.UpgradeName))*stallTime {
		var failed error
		after, failed = c.advance(ctx, u)
		err = errors.Join(err, failed)
	}
	if after == 0 {
		after = pollInterval
	}
	return after, err
}

// unconfirmed returns when this head checks again whether its program can be confirmed; 0: it is.
func (c *Controller) unconfirmed() time.Duration {
	if c.confirmed {
		return 0
	}
	return pollInterval
}

// confirm confirms the program of this process once its head is registered.
func (c *Controller) confirm() error {
	if c.confirmed {
		return nil
	}
	h, err := c.Tables.Heads.Get(c.Head)
	if err != nil || !h.Status.Started.Equal(c.Started) {
		return nil
	}
	err = c.Programs.Confirm()
	c.confirmed = err == nil
	return err
}

// unchanged returns for how long this head has seen the record as it is.
func (c *Controller) unchanged(u *trivet.Upgrade) time.Duration {
	if u.Revision != c.seen {
		c.seen, c.seenSince = u.Revision, c.now()
	}
	return c.now().Sub(c.seenSince)
}

// keepOwn reports this head's program, and starts the head again with another one where the record names it.
func (c *Controller) keepOwn(ctx context.Context, u *trivet.Upgrade) error {
	own := c.Programs.Report(ctx, u)
	if err := c.publish(ctx, &own); err != nil {
		return err
	}
	follow := c.Programs.Follow(u, c.Head, &own)
	if follow == nil || !c.confirmed {
		return nil
	}
	return c.startAgain(ctx, u, follow)
}

// startAgain selects another program and starts the head again, if a quorum has the record as this head does.
func (c *Controller) startAgain(ctx context.Context, u *trivet.Upgrade, follow func() error) error {
	err := c.update(ctx, func(tx *store.Tx) error {
		now, err := c.Tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		if err == nil && (now.Status.Head != c.Head || now.Status.Phase != u.Status.Phase || now.Spec.Run != u.Spec.Run) {
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
	heads, removing := c.members()
	next, reason := decide(u, heads)
	if next == none {
		return 0, nil
	}
	t := action{do: next, reason: reason, leader: c.Leader()}
	if next == begin || next == grant || next == finish {
		if t.broken, err = c.Broken(ctx); err != nil {
			return pollInterval, err
		}
	}
	suspect := true
	if next == grant || next == finish {
		if reason, isSuspect := c.notWell(u, heads, removing, t.broken); reason != "" {
			t.do, t.reason, suspect = waiting, reason, isSuspect
		}
	}
	if t.do == waiting && suspect && c.isStuck(u, heads) {
		t.do, t.reason = revert, fmt.Sprintf("it made no progress for %s: %s", stuckTime, t.reason)
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
		heads, err := c.membersIn(tx)
		if err != nil {
			return err
		}
		if now, _ := decide(u, heads); now != next {
			return errUnchanged
		}
		if err := c.take(tx, u, heads, &t); err != nil {
			return err
		}
		return c.Tables.Upgrades.In(tx).Put(u)
	})
}

// notWell returns why no head may start again now, or why the upgrade is not complete; empty: all is well. suspect: it
// may be due to the new program.
func (c *Controller) notWell(u *trivet.Upgrade, heads []*trivet.Head, removing string, broken []string) (
	reason string, suspect bool) {
	well := func(h *trivet.Head, d time.Duration) bool {
		if h.Name == c.Head {
			return c.now().Sub(c.created) >= d
		}
		return c.Well(h, d)
	}
	if u.Status.Phase == trivet.UpgradeReverting {
		return mayGoBack(heads, well), false
	}
	if removing != "" {
		return fmt.Sprintf("waits until %s is removed", removing), false
	}
	first := firstFull(u, heads)
	for _, h := range heads {
		switch {
		case !well(h, stableTime):
			return fmt.Sprintf("waits until %s has responded, with a quorum, for %s", h.Name, stableTime), runsNew(u, h)
		case h == first && !well(h, soak(u)):
			return fmt.Sprintf("waits until %s has been well with the new program for %s", h.Name, soak(u)), true
		}
	}
	broken = slices.DeleteFunc(slices.Clone(broken), func(name string) bool {
		return slices.Contains(u.Status.Broken, name)
	})
	if len(broken) > 0 {
		return fmt.Sprintf("waits until these hold again, see trivet status: %s", strings.Join(broken, ", ")), true
	}
	return "", false
}

func soak(u *trivet.Upgrade) time.Duration {
	if u.Spec.Soak == 0 {
		return trivet.DefaultSoak.D()
	}
	return u.Spec.Soak.D()
}

// isStuck reports whether an upgrade that has begun to replace programs makes no progress.
func (c *Controller) isStuck(u *trivet.Upgrade, heads []*trivet.Head) bool {
	if u.Status.Phase != trivet.UpgradeSwitching || u.Spec.Paused || c.unchanged(u) < stuckTime+soak(u) {
		return false
	}
	at := slices.IndexFunc(heads, func(h *trivet.Head) bool { return h.Name == u.Status.Head })
	if at >= 0 {
		return !isManual(heads[at])
	}
	return slices.ContainsFunc(heads, func(h *trivet.Head) bool { return runsNew(u, h) })
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
func (c *Controller) membersIn(tx *store.Tx) (heads []*trivet.Head, err error) {
	for _, listed := range c.Tables.Heads.In(tx).ListBy(state.ByMember, state.IsMember) {
		h, err := c.Tables.Heads.In(tx).Get(listed.Name)
		if err != nil {
			return nil, err
		}
		if !h.Spec.Remove {
			heads = append(heads, h)
		}
	}
	return heads, nil
}

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("nothing to write")

func (c *Controller) update(ctx context.Context, do func(tx *store.Tx) error) error {
	if _, err := c.Tables.Store.Update(ctx, do); err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}
