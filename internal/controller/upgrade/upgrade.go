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
	seen          int64     // the revision of the record that was seen last
	seenSince     time.Time // when it was first seen
	progress      progress  // of the upgrade, as it was seen last
	progressSince time.Time // when it was first seen
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
	// stableTime is how long each head must be well before the next one starts again.
	stableTime = 3 * time.Second
	// settleTime is how long no head is named to go back after the last change: one that was named before may be about to
	// start again, and respond still.
	settleTime = 10 * time.Second
	// stuckTime is how long an upgrade that has begun to replace programs waits for a head that starts again, or for all
	// to be well. Then the heads go back.
	stuckTime = 10 * time.Minute
)

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, _ string) (after time.Duration, err error) {
	registered := c.registered()
	u, err := c.Tables.Upgrades.Get(trivet.UpgradeName)
	if errors.Is(err, trivet.ErrNotFound) {
		u, err = &trivet.Upgrade{}, nil
	}
	if err != nil || !registered {
		return pollInterval, err
	}
	c.sinceProgress(u)
	if u.Spec.Run == u.Status.Run && u.Spec.Run > 0 && (u.InProgress() || u.Status.Phase == trivet.UpgradeReverted) {
		if err = c.keepOwn(ctx, u); err != nil {
			after = pollInterval
		}
	}
	if err == nil && !c.confirmed { // its record has what it runs
		err = c.Programs.Confirm()
		c.confirmed = err == nil
	}
	if !u.InProgress() {
		return after, err
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
		if runsNew(u, h) {
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
// the others went back without it. It does so while all others are well only: that may have changed since.
func (c *Controller) keepOwn(ctx context.Context, u *trivet.Upgrade) error {
	own := c.Programs.Report(ctx, u)
	if err := c.publish(ctx, &own); err != nil {
		return err
	}
	follow := c.Programs.Follow(u, c.Head, &own)
	if follow == nil {
		return nil
	}
	if reason := c.othersNotWell(u.Status.Phase); reason != "" {
		c.Log.Debug("this head is to start again", "reason", reason)
		return nil
	}
	return c.startAgain(ctx, u, follow)
}

// othersNotWell returns why this head must not start again now; empty: it may.
func (c *Controller) othersNotWell(phase trivet.UpgradePhase) string {
	heads, removing := c.members()
	if removing != "" {
		return fmt.Sprintf("waits until %s is removed", removing)
	}
	for _, h := range heads {
		if h.Name != c.Head && phase == trivet.UpgradeSwitching && !c.Well(h, stableTime) {
			return notStable(h)
		}
	}
	return mayGoBack(heads, func(h *trivet.Head, d time.Duration) bool { return h.Name == c.Head || c.Well(h, d) })
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

// wellFunc reports whether a member has been well for this long.
type wellFunc func(*trivet.Head, time.Duration) bool

// notWell returns why no head may start again now, or why the upgrade is not complete; empty: all is well. suspect: it
// may be due to the new program.
func (c *Controller) notWell(u *trivet.Upgrade, heads []*trivet.Head, removing string, broken []string) (
	reason string, suspect bool) {
	var well wellFunc = func(h *trivet.Head, d time.Duration) bool {
		if h.Name == c.Head {
			return c.now().Sub(c.created) >= d
		}
		return c.Well(h, d)
	}
	switch {
	case removing != "":
		return fmt.Sprintf("waits until %s is removed", removing), false
	case u.Status.Phase == trivet.UpgradeReverting && c.sinceProgress(u) < settleTime:
		return "waits for a moment: a head may be about to start", false
	case u.Status.Phase == trivet.UpgradeReverting:
		return mayGoBack(heads, well), false
	}
	first := firstFull(u, heads)
	for _, h := range heads {
		switch {
		case !well(h, stableTime):
			return notStable(h), runsNew(u, h)
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
	limit := stuckTime
	if firstFull(u, heads) != nil {
		limit += soak(u)
	}
	if u.Status.Phase != trivet.UpgradeSwitching || u.Spec.Paused || c.sinceProgress(u) < limit {
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
