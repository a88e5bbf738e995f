// Package platforms makes platforms follow upgrades of the heads: when all heads run a new program, the platforms get it
// as their agent, one after the other. Where it does not start on machines, they netboot the former initramfs again.
package platforms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/platform"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Content is the content of a blob.
type Content interface {
	io.ReaderAt
	io.Closer
}

// Blobs are the blobs of the cluster.
type Blobs interface {
	// Open returns the verified content of a blob. It fails with [trivet.ErrNotFound] where no head has it.
	Open(ctx context.Context, ref trivet.BlobRef) (Content, error)
	// Store stores content, on as many heads as are needed to acknowledge it.
	Store(ctx context.Context, content io.Reader) (trivet.BlobRef, error)
}

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "platforms",
	Reads:   []trivet.Kind{"Site"},
	Writes:  []trivet.Kind{"Platform", "Upgrade", "Event"},
	Watches: []trivet.Kind{"Platform", "Upgrade"},
	Input:   input,
	Workers: 1, // one initramfs is written at a time
}

// input is what the steps rest on.
func input(r trivet.Record) any {
	switch r := r.(type) {
	case *trivet.Platform:
		failed := 0
		if r.Status.Failures != nil {
			failed = len(r.Status.Failures.Machines)
		}
		return failed
	case *trivet.Upgrade:
		return string(r.Status.Phase)
	}
	return nil
}

// Config is what the controller needs.
type Config struct {
	Head   string
	Blobs  Blobs
	Tables *state.Tables
	// Rank returns how many heads go before this one for a key.
	Rank func(key string) int
}

// Controller implements [reconcile.Controller]. Its keys are the names of platforms, and [all].
type Controller struct {
	Config
	now func() time.Time
	due map[string]time.Time // since when platforms are to get the program, as far as this head has seen
}

// all is the key of the end of an upgrade. It is the name of no platform.
const all = "/"

const (
	// pollInterval is how often a platform is checked that waits for another one, or for another head.
	pollInterval = 5 * time.Second
	// headTime is how long a head leaves a platform to each head that ranks before it: it may take that to write the
	// initramfs.
	headTime = 2 * time.Minute
)

// New returns the controller.
func New(cfg Config) *Controller { return &Controller{cfg, time.Now, map[string]time.Time{}} }

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string {
	keys := []string{all}
	for p := range c.Tables.Platforms.AllShared() {
		keys = append(keys, p.Name)
	}
	return keys
}

// Affected implements [reconcile.Controller].
func (c *Controller) Affected(e *store.Event) []string {
	switch now := e.Record(); {
	case e.Kind == "Upgrade":
		return c.Keys()
	case now == nil:
		return []string{all}
	default:
		return []string{all, now.Header().Name}
	}
}

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, name string) (time.Duration, error) {
	u, err := c.Tables.Upgrades.Get(trivet.UpgradeName)
	if err != nil {
		return 0, ignoreMissing(err)
	}
	if name == all {
		return 0, c.end(ctx, u)
	}
	p, err := c.Tables.Platforms.Get(name)
	if err != nil {
		return 0, ignoreMissing(err)
	}
	next, reason, err := c.decide(p, u)
	if err != nil {
		return 0, err
	}
	if next != follow {
		delete(c.due, name)
	}
	switch next {
	case waiting:
		return pollInterval, nil
	case follow:
		if c.isOthers(name) {
			return pollInterval, nil
		}
		return 0, c.follow(ctx, p, u)
	case settle:
		return 0, c.change(ctx, p, u, c.keep(reason))
	case back:
		return 0, c.change(ctx, p, u, c.goBack(reason))
	}
	return 0, nil
}

// isOthers reports whether this head leaves a platform to another one.
func (c *Controller) isOthers(name string) bool {
	since, ok := c.due[name]
	if !ok {
		since = c.now()
		c.due[name] = since
	}
	return c.now().Sub(since) < time.Duration(c.Rank(name))*headTime
}

func (c *Controller) decide(p *trivet.Platform, u *trivet.Upgrade) (next step, reason string, err error) {
	site, err := c.Tables.Sites.GetShared(trivet.SiteName)
	if errors.Is(err, trivet.ErrNotFound) {
		site, err = &trivet.Site{}, nil
	}
	if err != nil {
		return none, "", err
	}
	next, reason = decide(p, u, c.platforms(p.Name), site.Spec.Platform, c.now())
	return next, reason, nil
}

// platforms returns all platforms but one, by their names.
func (c *Controller) platforms(but string) (others []*trivet.Platform) {
	for p := range c.Tables.Platforms.AllShared() {
		if p.Name != but {
			others = append(others, p)
		}
	}
	slices.SortFunc(others, func(a, b *trivet.Platform) int { return strings.Compare(a.Name, b.Name) })
	return others
}

// end lets the heads drop the program, when all platforms are settled. One that is imported meanwhile keeps the agent
// that it was imported with, as each that is imported after an upgrade.
func (c *Controller) end(ctx context.Context, u *trivet.Upgrade) error {
	if !u.PlatformsFollow() || !allSettled(c.platforms(""), u) {
		return nil
	}
	return c.update(ctx, func(tx *store.Tx) error {
		u, err := c.Tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		switch {
		case err != nil:
			return err
		case !u.PlatformsFollow():
			return errUnchanged
		}
		u.Status.Platforms = c.now().UTC()
		return c.Tables.Upgrades.In(tx).Put(u)
	})
}

// follow writes the new initramfs of a platform, and gives it to its machines. What a repetition cannot mend is
// settled; other failures are shown until it succeeds.
func (c *Controller) follow(ctx context.Context, p *trivet.Platform, u *trivet.Upgrade) error {
	made, err := c.compose(ctx, p, u)
	switch {
	case err == nil:
		return c.change(ctx, p, u, c.has(made))
	case ctx.Err() != nil:
		return err
	case errors.Is(err, trivet.ErrNotFound) || errors.Is(err, trivet.ErrInvalid):
		return c.change(ctx, p, u, c.keep(fmt.Sprintf("its initramfs cannot be written: %v", err)))
	}
	problem := fmt.Sprintf("its initramfs cannot be written yet: %v", err)
	return errors.Join(err, c.change(ctx, p, u, func(_ *store.Tx, p *trivet.Platform, u *trivet.Upgrade) error {
		st := statusOf(p)
		if st.Problem == bounded(problem) && st.Tried == u.Spec.Run {
			return errUnchanged
		}
		st.Problem, st.Tried = bounded(problem), u.Spec.Run
		return nil
	}))
}

// compose stores an initramfs: the base of the platform's, and the new program.
func (c *Controller) compose(ctx context.Context, p *trivet.Platform, u *trivet.Upgrade) (*trivet.PlatformInitrd, error) {
	initrd, agent := p.Initrd()
	program, _ := u.Spec.ProgramFor(p.Spec.Arch)
	from, err := c.Blobs.Open(ctx, initrd)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	with, err := c.Blobs.Open(ctx, program)
	if err != nil {
		return nil, err
	}
	defer with.Close()
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := platform.WithAgent(ctx, w, io.NewSectionReader(from, 0, initrd.Bytes), agent.Base,
			io.NewSectionReader(with, 0, program.Bytes), p.Spec.Arch)
		w.CloseWithError(err)
		written <- err
	}()
	ref, err := c.Blobs.Store(ctx, r)
	r.Close() // ends the writer
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	return &trivet.PlatformInitrd{Blob: ref, Agent: trivet.PlatformAgent{Base: agent.Base, Program: program.Digest,
		Version: u.Spec.Version, Release: u.Spec.Release}}, nil
}

// transition changes a platform in a transaction.
type transition func(tx *store.Tx, p *trivet.Platform, u *trivet.Upgrade) error

// keep settles an upgrade for a platform without a new initramfs. reason is why; empty: it has the program.
func (c *Controller) keep(reason string) transition {
	return func(tx *store.Tx, p *trivet.Platform, u *trivet.Upgrade) error {
		st := statusOf(p)
		st.Run, st.Problem = u.Spec.Run, bounded(reason)
		if reason == "" {
			return nil
		}
		return c.event(tx, u, trivet.ReasonPlatformKept, "platform "+p.Name+" keeps its agent: "+bounded(reason))
	}
}

// statusOf returns the status of the initramfs that was imported last.
func statusOf(p *trivet.Platform) *trivet.PlatformUpgrade {
	st := p.Status.Upgrade
	if st == nil {
		st = &trivet.PlatformUpgrade{}
	}
	if st.Imported != p.Spec.Initrd.Digest {
		st = &trivet.PlatformUpgrade{Run: st.Run, Imported: p.Spec.Initrd.Digest}
	}
	p.Status.Upgrade = st
	return st
}

// has gives machines a new initramfs.
func (c *Controller) has(made *trivet.PlatformInitrd) transition {
	return func(tx *store.Tx, p *trivet.Platform, u *trivet.Upgrade) error {
		initrd, agent := p.Initrd()
		p.Status.Upgrade = &trivet.PlatformUpgrade{Run: u.Spec.Run, Imported: p.Spec.Initrd.Digest, Initrd: made,
			Former: &trivet.PlatformInitrd{Blob: initrd, Agent: *agent}, Changed: c.now().UTC()}
		p.Status.Failures = nil // they are of the former one
		return c.event(tx, u, trivet.ReasonPlatformFollowed, fmt.Sprintf("machines netboot platform %s with an agent of "+
			"version %s; to go back: trivet platform rollback %s", p.Name, u.Spec.Version, p.Name))
	}
}

// goBack gives machines the former initramfs.
func (c *Controller) goBack(reason string) transition {
	return func(tx *store.Tx, p *trivet.Platform, u *trivet.Upgrade) error {
		st := p.Status.Upgrade
		version := st.Initrd.Agent.Version
		st.Initrd, st.Former, st.Changed, st.Proven = st.Former, nil, c.now().UTC(), time.Time{}
		st.Problem = bounded(fmt.Sprintf("the agent of version %s was taken back: %s", version, reason))
		p.Status.Failures = nil
		return c.event(tx, u, trivet.ReasonPlatformBack, fmt.Sprintf("machines netboot platform %s with its former agent "+
			"again: %s", p.Name, bounded(reason)))
	}
}

// change changes a platform in a transaction, where what it was decided by is still the same. Other platforms only
// decided when.
func (c *Controller) change(ctx context.Context, was *trivet.Platform, u *trivet.Upgrade, do transition) error {
	run := u.Spec.Run
	decided, _ := alone(was, u)
	return c.update(ctx, func(tx *store.Tx) error {
		u, err := c.Tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		if err != nil {
			return err
		}
		p, err := c.Tables.Platforms.In(tx).Get(was.Name)
		if err != nil {
			return ignoreMissing(err)
		}
		is, _ := alone(p, u)
		before, _ := was.Initrd()
		now, _ := p.Initrd()
		if is != decided || u.Spec.Run != run || now != before || p.UID != was.UID || p.Spec.Arch != was.Spec.Arch {
			return errUnchanged
		}
		if err := do(tx, p, u); err != nil {
			return err
		}
		return c.Tables.Platforms.In(tx).Put(p)
	})
}

// event writes an event of the upgrade.
func (c *Controller) event(tx *store.Tx, u *trivet.Upgrade, reason, message string) error {
	u.Status.Events++
	if err := c.Tables.Upgrades.In(tx).Put(u); err != nil {
		return err
	}
	return c.Tables.Events.In(tx).Put(&trivet.Event{
		Meta: trivet.Meta{Name: trivet.UpgradeEventName(u.Status.Events)},
		Spec: trivet.EventSpec{Subject: "upgrade/" + u.Name, SubjectUID: u.UID, Seq: u.Status.Events, Time: c.now(),
			Reason: reason, Message: message, Head: c.Head},
	})
}

// maxProblem bounds a problem in a record, in bytes.
const maxProblem = 1 << 10

func bounded(text string) string { return text[:min(len(text), maxProblem)] }

// errUnchanged ends a transaction that has nothing to write.
var errUnchanged = errors.New("nothing to write")

func (c *Controller) update(ctx context.Context, do func(tx *store.Tx) error) error {
	if _, err := c.Tables.Store.Update(ctx, do); err != nil && !errors.Is(err, errUnchanged) {
		return err
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	return err
}
