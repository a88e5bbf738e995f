package platforms

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// program returns a program that only its header makes one.
func program(text string) string {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(h[16:], 2)
	binary.LittleEndian.PutUint16(h[18:], 62)
	binary.LittleEndian.PutUint32(h[20:], 1)
	binary.LittleEndian.PutUint16(h[52:], 64)
	return string(h) + text
}

// base is what an initramfs begins with, by its first bytes compressed by gzip.
const base = "\x1f\x8bdrivers"

func refOf(text string) trivet.BlobRef {
	digest := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	return trivet.BlobRef{Digest: digest([]byte(text)), Bytes: int64(len(text)), Chunks: digest([]byte(text + " chunks"))}
}

// blobs are blobs in memory.
type blobs struct {
	held    map[string]string
	problem error // of Store
	stored  int
	during  func() // is called while an initramfs is stored
}

type content struct{ *strings.Reader }

func (content) Close() error { return nil }

func (b *blobs) Open(_ context.Context, ref trivet.BlobRef) (Content, error) {
	text, ok := b.held[ref.Digest]
	if !ok {
		return nil, fmt.Errorf("%w: no head holds it", trivet.ErrNotFound)
	}
	return content{strings.NewReader(text)}, nil
}

func (b *blobs) Store(_ context.Context, r io.Reader) (trivet.BlobRef, error) {
	if b.problem != nil {
		return trivet.BlobRef{}, b.problem
	}
	var all bytes.Buffer
	if _, err := io.Copy(&all, r); err != nil {
		return trivet.BlobRef{}, err
	}
	b.stored++
	if b.during != nil {
		b.during()
	}
	return b.add(all.String()), nil
}

func (b *blobs) add(text string) trivet.BlobRef {
	b.held[refOf(text).Digest] = text
	return refOf(text)
}

// lab is platforms of one head.
type lab struct {
	*testing.T
	tables *state.Tables
	*blobs
	c   *Controller
	now time.Time
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return newLabIn(t, storetest.New(t, state.New))
}

func newLabIn(t *testing.T, tables *state.Tables) *lab {
	l := &lab{T: t, tables: tables, blobs: &blobs{held: map[string]string{}}, now: time.Now()}
	l.c = New(Config{Head: "head0", Blobs: l.blobs, Tables: tables, Rank: func(string) int { return 0 }})
	l.c.now = func() time.Time { return l.now }
	l.update(func(tx *store.Tx) error {
		return tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Spec: trivet.SiteSpec{Platform: "a"}, Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	return l
}

func (l *lab) update(do func(tx *store.Tx) error) {
	l.Helper()
	if _, err := l.tables.Store.Update(l.Context(), do); err != nil {
		l.Fatal(err)
	}
}

// platform imports a platform with an agent, or without one that is known.
func (l *lab) platform(name, agent string) {
	l.Helper()
	p := &trivet.Platform{Meta: trivet.Meta{Name: name}, Spec: trivet.PlatformSpec{Arch: "amd64", Kernel: l.add("kernel"),
		Initrd: l.add(base + agent)}}
	if agent != "" {
		p.Spec.Agent = &trivet.PlatformAgent{Base: int64(len(base)), Program: refOf(agent).Digest, Version: agent}
	}
	l.update(func(tx *store.Tx) error { return l.tables.Platforms.In(tx).Put(p) })
}

// upgraded completes an upgrade to a version.
func (l *lab) upgraded(version string, change ...func(*trivet.Upgrade)) {
	l.Helper()
	l.update(func(tx *store.Tx) error {
		u, err := l.tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		if errors.Is(err, trivet.ErrNotFound) {
			u, err = &trivet.Upgrade{Meta: trivet.Meta{Name: trivet.UpgradeName}}, nil
		}
		if err != nil {
			return err
		}
		u.Spec = trivet.UpgradeSpec{Run: u.Spec.Run + 1, Version: version, Release: trivet.CurrentRelease,
			Programs: []trivet.Program{{Arch: "amd64", Blob: l.add(program(version))}}}
		u.Status = trivet.UpgradeStatus{Run: u.Spec.Run, Phase: trivet.UpgradeDone, Events: u.Status.Events}
		for _, do := range change {
			do(u)
		}
		return l.tables.Upgrades.In(tx).Put(u)
	})
}

func (l *lab) change(name string, do func(*trivet.Platform)) {
	l.Helper()
	l.update(func(tx *store.Tx) error {
		p, err := l.tables.Platforms.In(tx).Get(name)
		if err != nil {
			return err
		}
		do(p)
		return l.tables.Platforms.In(tx).Put(p)
	})
}

// run processes all keys until nothing changes any more, and returns what failed last.
func (l *lab) run() (err error) {
	l.Helper()
	for last := int64(-1); last != l.tables.Store.Revision(); {
		last = l.tables.Store.Revision()
		for _, key := range l.c.Keys() {
			_, failed := l.c.Reconcile(l.Context(), key)
			err = cmp.Or(failed, err)
		}
	}
	return err
}

// agents returns the versions of the agents of all platforms.
func (l *lab) agents() string {
	l.Helper()
	var all []string
	for p := range l.tables.Platforms.AllShared() {
		initrd, agent := p.Initrd()
		if agent == nil {
			all = append(all, p.Name+"=unknown")
			continue
		}
		all = append(all, p.Name+"="+agent.Version)
		if text := l.held[initrd.Digest]; !strings.HasPrefix(text, base) || agent.Base != int64(len(base)) {
			l.Errorf("the initramfs of %s is %q", p.Name, text)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (l *lab) want(agents string, ended bool) {
	l.Helper()
	if got := l.agents(); got != agents {
		l.Errorf("the agents are %s; want %s", got, agents)
	}
	u, err := l.tables.Upgrades.Get(trivet.UpgradeName)
	if err != nil {
		l.Fatal(err)
	}
	if u.Status.Platforms.IsZero() == ended || u.NeedsPrograms() == ended {
		l.Errorf("ended: %v", !ended)
	}
}

func (l *lab) record(name string) *trivet.Platform {
	l.Helper()
	p, err := l.tables.Platforms.Get(name)
	if err != nil {
		l.Fatal(err)
	}
	return p
}

// reasons returns those of all events.
func (l *lab) reasons() string {
	l.Helper()
	events, err := l.tables.Events.Under(l.Context(), "upgrade.", "", 100)
	if err != nil {
		l.Fatal(err)
	}
	slices.SortFunc(events, func(a, b *trivet.Event) int { return cmp.Compare(a.Spec.Seq, b.Spec.Seq) })
	var all []string
	for _, e := range events {
		all = append(all, e.Spec.Reason)
	}
	return strings.Join(all, " ")
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// The platforms get the program when all heads run it: the default of the site last, and after the time that one that
// has not started on a machine yet was given.
func TestFollows(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.platform("a", "v1") // the default
	l.platform("b", "v1")
	l.platform("old", "")
	l.upgraded("v2", func(u *trivet.Upgrade) { u.Status.Phase = trivet.UpgradeSwitching })
	l.must(l.run())
	if got := l.agents(); got != "a=v1 b=v1 old=unknown" {
		t.Errorf("before all heads run it: %s", got)
	}
	l.upgraded("v2")
	l.must(l.run())
	l.want("a=v1 b=v2 old=unknown", false)
	b := l.record("b")
	if f := b.Followed().Former; f == nil || f.Blob != b.Spec.Initrd || f.Agent.Version != "v1" {
		t.Errorf("the former initramfs: %+v", f)
	}
	if refs := state.BlobsOf(b); !slices.Contains(refs, b.Followed().Initrd.Blob) || !slices.Contains(refs, b.Spec.Initrd) {
		t.Errorf("the heads hold %v", refs)
	}
	if problem := l.record("old").UpgradeProblem(); !strings.Contains(problem, "build and import it again") {
		t.Error(problem)
	}
	l.now = l.now.Add(trivet.DefaultSoak.D())
	l.must(l.run())
	l.want("a=v2 b=v2 old=unknown", true)
	if got := l.reasons(); got != "PlatformKept PlatformFollowed PlatformFollowed" && // in the order of the keys
		got != "PlatformFollowed PlatformKept PlatformFollowed" {
		t.Errorf("the events: %s", got)
	}
	l.platform("later", "v1")
	l.must(l.run())
	l.want("a=v2 b=v2 later=v1 old=unknown", true)

	l.upgraded("v3")
	l.change("b", func(p *trivet.Platform) { p.Status.Upgrade.Proven = l.now })
	l.must(l.run())
	l.change("b", func(p *trivet.Platform) { p.Status.Upgrade.Proven = l.now }) // an agent has started
	l.must(l.run())
	l.now = l.now.Add(trivet.DefaultSoak.D())
	l.must(l.run())
	l.want("a=v3 b=v3 later=v3 old=unknown", true)
	if f := l.record("b").Followed().Former; f.Agent.Version != "v2" {
		t.Errorf("the former initramfs: %+v", f)
	}
}

// What another import says, holds: a platform that is imported again has what was imported.
func TestImportedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.platform("a", "v1")
	l.upgraded("v2")
	l.must(l.run())
	l.want("a=v2", true)
	l.change("a", func(p *trivet.Platform) {
		p.Spec.Initrd = l.add(base + "v0")
		p.Spec.Agent.Version, p.Spec.Agent.Program = "v0", refOf("v0").Digest
	})
	l.must(l.run())
	l.want("a=v0", true)
	l.change("a", func(p *trivet.Platform) { p.Spec.Agent = nil })
	l.upgraded("v3")
	l.must(l.run())
	if l.record("a").UpgradeProblem() == "" {
		t.Error("it says nothing of its unknown agent")
	}
	l.change("a", func(p *trivet.Platform) { p.Spec.Initrd = l.add(base + "v4") })
	if problem := l.record("a").UpgradeProblem(); problem != "" {
		t.Errorf("of what was imported before: %s", problem)
	}
}

// A platform keeps its agent where it cannot, or is not to, get the new one.
func TestKept(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.platform("a", "v1")
	for _, tc := range []struct {
		what   string
		change func(*trivet.Upgrade)
		want   string
	}{
		{"another architecture", func(u *trivet.Upgrade) { u.Spec.Programs[0].Arch = "arm64" }, "no program for amd64"},
		{"the program is gone", func(u *trivet.Upgrade) { u.Spec.Programs[0].Blob = refOf("gone") }, "no head holds it"},
		{"no program", func(u *trivet.Upgrade) { u.Spec.Programs[0].Blob = l.add("text") }, "not an ELF program"},
		{"the same program", func(u *trivet.Upgrade) { u.Spec.Programs[0].Blob = refOf("v1") }, ""},
	} {
		l.upgraded("v2", tc.change)
		l.must(l.run())
		l.want("a=v1", true)
		if got := l.record("a").UpgradeProblem(); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %q; want %q", tc.what, got, tc.want)
		}
	}
	l.upgraded("v2", func(u *trivet.Upgrade) { u.Spec.KeepPlatforms = true })
	l.must(l.run())
	if u, err := l.tables.Upgrades.Get(trivet.UpgradeName); err != nil || u.NeedsPrograms() || l.agents() != "a=v1" {
		t.Errorf("although it is to keep its agent: %s, %v", l.agents(), err)
	}
	l.change("a", func(p *trivet.Platform) { p.Spec.Agent.Release = "99.0" })
	l.upgraded("v2")
	l.must(l.run())
	if got := l.record("a").UpgradeProblem(); !strings.Contains(got, "later than") || l.agents() != "a=v1" {
		t.Errorf("a later agent: %s, %s", l.agents(), got)
	}
}

// What fails for now is tried again, does not hold up other platforms, and is shown until then.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.platform("a", "v1")
	l.platform("b", "v1")
	l.problem = fmt.Errorf("%w: the quota of blobs is exceeded", trivet.ErrUnavailable)
	l.upgraded("v2")
	if err := l.run(); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	l.want("a=v1 b=v1", false)
	for _, name := range []string{"a", "b"} {
		if got := l.record(name).UpgradeProblem(); !strings.Contains(got, "yet: ") || !strings.Contains(got, "quota") {
			t.Errorf("%s: %q", name, got)
		}
	}
	l.problem = nil
	l.must(l.run())
	l.now = l.now.Add(trivet.DefaultSoak.D())
	l.must(l.run())
	l.want("a=v2 b=v2", true)
	if got := l.record("a").UpgradeProblem(); got != "" {
		t.Error(got)
	}
}

// What was imported while an initramfs was written is not replaced by it.
func TestChangedMeanwhile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.platform("a", "v1")
	l.during = func() {
		l.during = nil
		l.change("a", func(p *trivet.Platform) {
			p.Spec.Initrd = l.add(base + "v1.1")
			p.Spec.Agent.Version, p.Spec.Agent.Program = "v1.1", refOf("v1.1").Digest
		})
	}
	l.upgraded("v2")
	l.must(l.run())
	l.want("a=v2", true)
	if former := l.record("a").Followed().Former; former.Agent.Version != "v1.1" || l.stored != 2 {
		t.Errorf("the former one is %+v, after %d were written", former, l.stored)
	}
}

// A platform whose agent never started on a machine goes back when it is at fault, and others of its architecture keep
// theirs. After it has started once, other causes are more likely.
func TestAtFault(t *testing.T) {
	t.Parallel()
	fail := func(l *lab, machines ...string) {
		l.change("b", func(p *trivet.Platform) {
			p.Status.Failures = &trivet.SharedFailures{Generation: p.Generation, Machines: machines, Step: trivet.StepHello}
		})
	}
	l := newLab(t)
	l.platform("a", "v1")
	l.platform("b", "v1")
	fail(l, "m1", "m2") // with the agent of before
	l.upgraded("v2")
	l.must(l.run())
	fail(l, "m1")
	l.must(l.run())
	l.want("a=v1 b=v2", false)
	fail(l, "m1", "m2")
	l.must(l.run())
	l.want("a=v1 b=v1", true)
	b := l.record("b")
	if b.Status.Failures != nil || !strings.Contains(b.UpgradeProblem(), "v2 was taken back: platform b is at fault") {
		t.Errorf("%+v, %s", b.Status.Failures, b.UpgradeProblem())
	}
	if got := l.record("a").UpgradeProblem(); !strings.Contains(got, "platform b went back") {
		t.Error(got)
	}
	if got := l.reasons(); got != "PlatformFollowed PlatformBack PlatformKept" {
		t.Errorf("the events: %s", got)
	}
	fail(l, "m1", "m2") // with the former one as well
	l.must(l.run())
	l.want("a=v1 b=v1", true)

	l.upgraded("v3")
	l.must(l.run())
	l.change("b", func(p *trivet.Platform) { p.Status.Upgrade.Proven = l.now })
	fail(l, "m1", "m2")
	l.must(l.run())
	l.want("a=v3 b=v3", true)
}

// An operator, and a rollback of the heads, take the agent back.
func TestGoesBack(t *testing.T) {
	t.Parallel()
	for what, request := range map[string]func(*lab){
		"an operator": func(l *lab) {
			l.change("a", func(p *trivet.Platform) { p.Spec.Back = p.Status.Upgrade.Run })
		},
		"the heads": func(l *lab) {
			l.update(func(tx *store.Tx) error {
				u, err := l.tables.Upgrades.In(tx).Get(trivet.UpgradeName)
				if err != nil {
					return err
				}
				u.Spec.Rollback, u.Status.Phase = true, trivet.UpgradeReverted
				return l.tables.Upgrades.In(tx).Put(u)
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.platform("a", "v1")
			l.upgraded("v2")
			l.must(l.run())
			l.change("a", func(p *trivet.Platform) { p.Status.Upgrade.Proven = l.now })
			l.want("a=v2", true)
			request(l)
			l.must(l.run())
			l.want("a=v1", true)
			l.upgraded("v3")
			l.must(l.run())
			l.want("a=v3", true)
		})
	}
}

// A head that ranks later only writes an initramfs where those before it do not.
func TestRank(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.c.Rank = func(string) int { return 1 }
	l.platform("a", "v1")
	l.upgraded("v2")
	l.must(l.run())
	l.want("a=v1", false)
	l.now = l.now.Add(headTime)
	l.must(l.run())
	l.want("a=v2", true)
}

func TestDeclaration(t *testing.T) {
	t.Parallel()
	tables := storetest.New(t, state.New)
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		l := newLabIn(t, tables)
		name, version := fmt.Sprint("p", n), fmt.Sprint("v2.", n)
		l.platform(name, "v1")
		l.upgraded(version)
		l.c.Tables = tables.Within(scope)
		for range 4 {
			for _, key := range l.c.Keys() {
				if _, err := l.c.Reconcile(ctx, key); err != nil {
					return err
				}
			}
			l.now = l.now.Add(time.Hour)
		}
		if _, agent := l.record(name).Initrd(); agent.Version != version {
			return fmt.Errorf("its agent is %s", agent.Version)
		}
		return nil
	})
}
