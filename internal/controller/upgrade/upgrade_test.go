package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

const oldProgram, newProgram = "sha256:old", "sha256:new"

// box is a head of a site in memory.
type box struct {
	name, role string
	running    string // the program of its process
	selected   string // that of its next start
	problem    string // why it cannot have the new program
	breaks     bool   // the new program does not work here
	crashes    bool   // it ends every now and then with the new program
	down       bool
	noFormer   bool // it knows no former program
	manual     bool
	ctl        *Controller // nil for a witness
	exit       time.Time   // when its process ended last
	started    time.Time   // when the present one began
	former     time.Time   // when the one before began
	lost       time.Time   // since when it is down
}

// What a process takes to start, and how old what others know of it is.
const (
	startTime = 2 * time.Second
	pingLag   = 2 * time.Second
)

// off reports whether its process is between its end and its start.
func (b *box) off(now time.Time) bool { return !now.Before(b.exit) && now.Before(b.started) }

// Report implements [Programs].
func (b *box) Report(_ context.Context, u *trivet.Upgrade) trivet.HeadProgram {
	p := trivet.HeadProgram{Run: u.Spec.Run, Arch: "amd64", Running: b.running, Staged: true, Manual: b.manual,
		Former: b.running == newProgram && !b.noFormer}
	if b.problem != "" {
		p.Staged, p.Failed, p.Problem = false, true, b.problem
	}
	return p
}

// Follow implements [Programs].
func (b *box) Follow(u *trivet.Upgrade, head string, p *trivet.HeadProgram) func() error {
	back := func() error { b.selected = oldProgram; return nil }
	switch {
	case p.Manual:
	case u.Status.Phase == trivet.UpgradeReverted && p.Former:
		return back
	case u.Status.Head != head:
	case u.Status.Phase == trivet.UpgradeSwitching && p.Running != newProgram && !p.Failed:
		return func() error { b.selected = newProgram; return nil }
	case u.Status.Phase == trivet.UpgradeReverting && p.Former:
		return back
	}
	return nil
}

// Confirm implements [Programs].
func (b *box) Confirm() error { return nil }

// site is heads on one member whose programs are replaced.
type site struct {
	*testing.T
	tables *state.Tables
	boxes  []*box
	leader string
	broken []string
	starts []string // what started again, in order
	most   int      // heads that ran another program than before at the same time, not well yet
	now    time.Time
}

func newSite(t *testing.T, voters int, witness bool) *site {
	t.Helper()
	return newSiteIn(t, storetest.New(t, state.New), voters, witness)
}

// newSiteIn returns a site in a store, without what that has of another one.
func newSiteIn(t *testing.T, tables *state.Tables, voters int, witness bool) *site {
	t.Helper()
	s := &site{T: t, tables: tables, now: time.Now(), leader: "head0"}
	s.clear()
	for i := range voters {
		s.add(fmt.Sprint("head", i), trivet.RoleVoter, i)
	}
	if witness {
		s.add("witness", trivet.RoleWitness, 0)
	}
	s.update(func(tx *store.Tx) error {
		return s.tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	return s
}

// clear deletes the heads and the upgrade of another site.
func (s *site) clear() {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		for h := range s.tables.Heads.AllShared() {
			if err := s.tables.Heads.In(tx).Delete(h.Name); err != nil {
				return err
			}
		}
		err := s.tables.Upgrades.In(tx).Delete(trivet.UpgradeName)
		if errors.Is(err, trivet.ErrNotFound) {
			err = nil
		}
		return err
	})
}

func (s *site) add(name, role string, rank int) {
	s.Helper()
	b := &box{name: name, role: role, running: oldProgram, selected: oldProgram, started: s.now}
	s.boxes = append(s.boxes, b)
	s.put(b)
	if role == trivet.RoleWitness {
		return
	}
	b.ctl = New(Config{Head: name, Programs: b, Tables: s.tables, Rank: func(string) int { return rank },
		Leader: func() string { return s.leader }, Well: s.isWell, Started: b.started,
		Broken:  func(context.Context) ([]string, error) { return slices.Clone(s.broken), nil },
		Restart: func() { s.restart(b) }, Log: slog.New(slog.DiscardHandler)})
	b.ctl.now, b.ctl.created = func() time.Time { return s.now }, s.now
}

func (s *site) box(name string) *box {
	i := slices.IndexFunc(s.boxes, func(b *box) bool { return b.name == name })
	return s.boxes[i]
}

// isWell is what other heads know, by pings.
func (s *site) isWell(h *trivet.Head, d time.Duration) bool {
	b, seen := s.box(h.Name), s.now.Add(-pingLag)
	switch {
	case b.down && !seen.Before(b.lost), b.off(seen):
		return false
	case seen.Before(b.exit):
		return seen.Sub(b.former) >= d
	}
	return seen.Sub(b.started) >= d
}

// lose lets a head be down, or return with what is selected.
func (s *site) lose(b *box, down bool) {
	switch {
	case down && !b.down:
		b.lost = s.now
	case !down && b.down:
		b.former, b.exit, b.started, b.running = b.started, b.lost, s.now, b.selected
		s.startedAgain(b)
	}
	b.down = down
}

// restart starts a head again with what is selected. Where that does not work, it runs the former program.
func (s *site) restart(b *box) {
	s.starts = append(s.starts, b.name)
	b.former, b.exit, b.started = b.started, s.now, s.now.Add(startTime)
	if b.selected == newProgram && b.breaks {
		b.selected, b.problem = oldProgram, "it ended 3 times"
	}
	b.running = b.selected
	s.startedAgain(b)
}

func (s *site) startedAgain(b *box) {
	if b.ctl != nil {
		b.ctl.created, b.ctl.confirmed, b.ctl.leaving, b.ctl.progress = b.started, false, false, progress{}
		b.ctl.badSince, b.ctl.goodSince = time.Time{}, time.Time{}
		b.ctl.Started = b.started
	}
	s.update(func(tx *store.Tx) error {
		h, err := s.tables.Heads.In(tx).Get(b.name)
		if err != nil {
			return err
		}
		h.Status.Started = b.started
		return s.tables.Heads.In(tx).Put(h)
	})
}

func (s *site) update(do func(tx *store.Tx) error) {
	s.Helper()
	if _, err := s.tables.Store.Update(s.Context(), do); err != nil && !errors.Is(err, errUnchanged) {
		s.Fatal(err)
	}
}

func (s *site) put(b *box) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		return s.tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: b.name}, Spec: trivet.HeadSpec{Role: b.role},
			Status: trivet.HeadStatus{State: trivet.HeadMember, Release: trivet.CurrentRelease, Started: b.started}})
	})
}

// request requests an upgrade, or changes the request.
func (s *site) request(do func(*trivet.UpgradeSpec)) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		u, err := s.tables.Upgrades.In(tx).Get(trivet.UpgradeName)
		if errors.Is(err, trivet.ErrNotFound) {
			u, err = &trivet.Upgrade{Meta: trivet.Meta{Name: trivet.UpgradeName}}, nil
		}
		if err != nil {
			return err
		}
		do(&u.Spec)
		return s.tables.Upgrades.In(tx).Put(u)
	})
}

func run(u *trivet.UpgradeSpec) {
	*u = trivet.UpgradeSpec{Run: u.Run + 1, Version: "v2", Release: trivet.CurrentRelease,
		Programs: []trivet.Program{{Arch: "amd64", Blob: trivet.BlobRef{Digest: newProgram}}}}
}

func (s *site) record() *trivet.Upgrade {
	s.Helper()
	u, err := s.tables.Upgrades.Get(trivet.UpgradeName)
	if err != nil {
		s.Fatal(err)
	}
	return u
}

// round reconciles each head once, and lets the witness follow; then d passes.
func (s *site) round(d time.Duration) {
	s.Helper()
	for _, b := range s.boxes {
		if b.crashes && b.running == newProgram && s.now.Sub(b.started) > 10*time.Second {
			s.restart(b)
		}
		if b.down || b.off(s.now) {
			continue
		}
		if b.ctl == nil {
			s.follow(b)
			continue
		}
		if _, err := b.ctl.Reconcile(s.Context(), trivet.UpgradeName); err != nil && !errors.Is(err, trivet.ErrConflict) &&
			!errors.Is(err, trivet.ErrUnavailable) {
			s.Fatalf("%s: %v", b.name, err)
		}
	}
	busy := 0
	for _, b := range s.boxes {
		if b.off(s.now) && !b.down {
			busy++
		}
	}
	s.most = max(s.most, busy)
	s.now = s.now.Add(d)
}

// follow is what a witness and the head that writes its record do.
func (s *site) follow(b *box) {
	u := s.record()
	p := b.Report(s.Context(), u)
	s.update(func(tx *store.Tx) error {
		h, err := s.tables.Heads.In(tx).Get(b.name)
		if err != nil || h.Status.Program != nil && *h.Status.Program == p {
			return errors.Join(err, errUnchanged)
		}
		h.Status.Program = &p
		return s.tables.Heads.In(tx).Put(h)
	})
	for _, other := range s.boxes { // which the full head checks before it responds
		h := &trivet.Head{Meta: trivet.Meta{Name: other.name}}
		if other != b && !s.isWell(h, stableTime) {
			return
		}
	}
	if follow := b.Follow(u, b.name, &p); follow != nil {
		_ = follow()
		s.restart(b)
	}
}

// until runs rounds until the upgrade has ended, or for so many.
func (s *site) until(rounds int, ended func(*trivet.Upgrade) bool) *trivet.Upgrade {
	s.Helper()
	for range rounds {
		if s.round(time.Second); ended(s.record()) {
			return s.record()
		}
	}
	return s.record()
}

func hasEnded(u *trivet.Upgrade) bool { return !u.InProgress() }

func (s *site) want(u *trivet.Upgrade, phase trivet.UpgradePhase, running string) {
	s.Helper()
	if u.Status.Phase != phase {
		s.Errorf("the upgrade is %+v; want %s", u.Status, phase)
	}
	for _, b := range s.boxes {
		if b.running != running && !b.down && !b.manual {
			s.Errorf("%s runs %s; want %s", b.name, b.running, running)
		}
	}
	if s.most > 1 {
		s.Errorf("%d heads started again at the same time", s.most)
	}
}

// The witness is first and the leader last, one at a time; the first full head is watched for longer.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, true)
	s.leader = "head1"
	s.request(run)
	u := s.until(200, hasEnded)
	s.want(u, trivet.UpgradeDone, newProgram)
	if got := strings.Join(s.starts, " "); got != "witness head0 head2 head1" {
		t.Errorf("the order was %s", got)
	}
	if d := s.box("head2").started.Sub(s.box("head0").started); d < trivet.DefaultSoak.D() {
		t.Errorf("the second full head started again %s after the first", d)
	}
	if d := s.box("head1").started.Sub(s.box("head2").started); d > trivet.DefaultSoak.D() {
		t.Errorf("the last one waited %s", d)
	}
	for range 20 {
		s.round(time.Minute)
	}
	if len(s.starts) != 4 {
		t.Errorf("they started again afterwards: %v", s.starts)
	}
}

func TestOneHead(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, false)
	s.request(run)
	s.want(s.until(30, hasEnded), trivet.UpgradeDone, newProgram)
}

// No head starts with a program that another one cannot have.
func TestStagingFails(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	s.box("head2").problem = "programs cannot run there"
	s.request(run)
	u := s.until(30, hasEnded)
	s.want(u, trivet.UpgradeReverted, oldProgram)
	if len(s.starts) > 0 || !strings.Contains(u.Status.Cause, "head2: programs cannot run there") {
		t.Errorf("%v started; the cause: %q", s.starts, u.Status.Cause)
	}
	s.box("head2").problem = ""
	s.request(run)
	s.want(s.until(200, hasEnded), trivet.UpgradeDone, newProgram)
}

// Where the new program does not work on a head, all go back.
func TestFallbackOfOne(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"witness", "head0", "head1", "head2"} {
		s := newSite(t, 3, true)
		s.box(name).breaks = true
		s.request(run)
		u := s.until(400, hasEnded)
		s.want(u, trivet.UpgradeReverted, oldProgram)
		if !strings.Contains(u.Status.Cause, name+": it ended 3 times") {
			t.Errorf("the cause: %q", u.Status.Cause)
		}
	}
}

// Nothing starts again while a head is down, or while something is broken that was not before. What may be due to the
// new program is not waited for without an end.
func TestGate(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	s.broken = []string{"backups"}
	s.request(run)
	s.until(20, func(*trivet.Upgrade) bool { return s.box("head1").running == newProgram })
	s.broken = []string{"backups", "dhcp"}
	s.until(120, hasEnded)
	if u := s.record(); s.box("head2").running != oldProgram || !strings.Contains(u.Status.Reason, "trivet status: dhcp") {
		t.Errorf("%+v, after %v", u.Status, s.starts)
	}
	s.lose(s.box("head2"), true)
	s.until(5, hasEnded)
	s.broken = []string{"backups"}
	s.until(2000, hasEnded)
	if u := s.record(); len(s.starts) > 1 || !strings.Contains(u.Status.Reason, "head2 has responded") {
		t.Errorf("%+v, after %v", u.Status, s.starts)
	}
	s.lose(s.box("head2"), false)
	s.broken = []string{"backups", "dhcp"}
	u := s.until(1200, hasEnded)
	s.want(u, trivet.UpgradeReverted, oldProgram)
	if !strings.Contains(u.Status.Cause, "no progress for 10m") {
		t.Errorf("the cause: %q", u.Status.Cause)
	}
}

// A head that does not return ends the upgrade. Where it returns later, with the new program, it goes back as well.
func TestHeadDoesNotReturn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"head1", "witness"} {
		s := newSite(t, 3, name == "witness")
		s.request(run)
		s.until(60, func(u *trivet.Upgrade) bool { return u.Status.Head == name })
		b := s.box(name)
		b.selected = newProgram
		s.lose(b, true)
		u := s.until(1200, hasEnded)
		s.want(u, trivet.UpgradeReverted, oldProgram)
		if !strings.Contains(u.Status.Cause, name+" starts again") {
			t.Errorf("the cause: %q", u.Status.Cause)
		}
		s.lose(b, false)
		if b.running != newProgram {
			t.Errorf("it returns with %s", b.running)
		}
		s.until(60, func(*trivet.Upgrade) bool { return b.running == oldProgram })
		s.want(s.record(), trivet.UpgradeReverted, oldProgram)
	}
}

// A head that ends again and again with the new program makes no progress, whatever is written meanwhile.
func TestCrashes(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	s.box("head1").crashes = true
	s.request(run)
	u := s.until(2000, hasEnded)
	s.want(u, trivet.UpgradeReverted, oldProgram)
	if !strings.Contains(u.Status.Cause, "no progress for 10m") {
		t.Errorf("the cause: %q", u.Status.Cause)
	}
}

// A head that is named to go back, and dies, keeps neither the others from that nor the upgrade from ending.
func TestDiesWhileGoingBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, 5, false)
	s.request(run)
	s.want(s.until(400, hasEnded), trivet.UpgradeDone, newProgram)
	s.request(func(u *trivet.UpgradeSpec) { u.Rollback = true })
	s.until(60, func(u *trivet.Upgrade) bool { return u.Status.Head != "" })
	b := s.box(s.record().Status.Head)
	s.lose(b, true)
	u := s.until(2000, hasEnded)
	s.want(u, trivet.UpgradeReverted, oldProgram)
	if !strings.Contains(u.Status.Cause, b.name+" does not respond, and goes back when it") {
		t.Errorf("%s runs %s: %+v", b.name, b.running, u.Status)
	}
	s.lose(b, false)
	s.until(60, func(*trivet.Upgrade) bool { return b.running == oldProgram })
	s.want(s.record(), trivet.UpgradeReverted, oldProgram)
}

// A rollback right after a head was named does not let another one start while that does.
func TestRollbackAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	s.request(run)
	s.until(200, func(*trivet.Upgrade) bool { return len(s.starts) == 2 })
	s.request(func(u *trivet.UpgradeSpec) { u.Rollback = true })
	s.want(s.until(300, hasEnded), trivet.UpgradeReverted, oldProgram)
}

// A head that is named, but can follow only later, does so while all others are well only.
func TestNamedButLate(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	s.request(run)
	s.until(20, func(u *trivet.Upgrade) bool { return u.Status.Phase == trivet.UpgradeStaging })
	s.lose(s.box("head1"), true) // it is cut off from before it is named
	s.box("head1").lost = s.now.Add(time.Hour)
	s.until(30, func(u *trivet.Upgrade) bool { return u.Status.Head == "head1" })
	s.lose(s.box("head2"), true)
	s.until(10, hasEnded)
	s.box("head1").down = false
	s.until(60, hasEnded)
	if len(s.starts) > 0 {
		t.Errorf("%v started again while head2 is down", s.starts)
	}
	s.lose(s.box("head2"), false)
	s.want(s.until(300, hasEnded), trivet.UpgradeDone, newProgram)
}

// A head that has no former program does not keep the others from going back.
func TestNoFormerProgram(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	b := s.box("head2")
	b.running, b.selected, b.noFormer = newProgram, newProgram, true // its package is the new one
	s.request(run)
	s.want(s.until(300, hasEnded), trivet.UpgradeDone, newProgram)
	s.request(func(u *trivet.UpgradeSpec) { u.Rollback = true })
	u := s.until(300, hasEnded)
	if u.Status.Phase != trivet.UpgradeReverted || s.box("head0").running != oldProgram ||
		!strings.Contains(u.Status.Cause, "head2 cannot go back by command, and keeps the new one") {
		t.Errorf("%+v", u.Status)
	}
}

// While a rotation of the CA starts heads again, an upgrade does not begin.
func TestWaitsForTheCA(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, false)
	phase := func(p trivet.KeyPhase) {
		s.update(func(tx *store.Tx) error {
			return s.tables.Keys.In(tx).Put(&trivet.Key{Meta: trivet.Meta{Name: trivet.CAKey},
				Spec: trivet.KeySpec{Rotations: 1, Grace: trivet.MinGrace}, Status: trivet.KeyStatus{Phase: p}})
		})
	}
	phase(trivet.KeySigning)
	s.request(run)
	s.until(60, hasEnded)
	if u := s.record(); u.Status.Run != 0 || u.Status.Reason != "waits until the CA is rotated" {
		t.Errorf("it has begun: %+v", u.Status)
	}
	phase("")
	s.want(s.until(300, hasEnded), trivet.UpgradeDone, newProgram)
}

// A paused upgrade starts no further head, for as long as that is so.
func TestPause(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	s.request(run)
	s.until(20, func(*trivet.Upgrade) bool { return len(s.starts) == 1 })
	s.request(func(u *trivet.UpgradeSpec) { u.Paused = true })
	s.until(3000, hasEnded)
	if u := s.record(); len(s.starts) != 1 || u.Status.Reason != "it is paused" || !u.InProgress() {
		t.Errorf("%+v, after %v", u.Status, s.starts)
	}
	s.broken = []string{"dhcp"} // it has its time again
	s.request(func(u *trivet.UpgradeSpec) { u.Paused = false })
	s.until(60, hasEnded)
	s.broken = nil
	s.want(s.until(300, hasEnded), trivet.UpgradeDone, newProgram)
}

// It is rolled back at any point, and after it is complete.
func TestRollback(t *testing.T) {
	t.Parallel()
	for starts := range 4 {
		s := newSite(t, 3, false)
		s.request(run)
		s.until(300, func(u *trivet.Upgrade) bool {
			return len(s.starts) >= starts && u.Status.Run == 1 && (starts < 3 || hasEnded(u))
		})
		s.request(func(u *trivet.UpgradeSpec) { u.Rollback = true })
		s.want(s.until(300, hasEnded), trivet.UpgradeReverted, oldProgram)
	}
}

// A head that does not permit it is waited for, and counts once it has the version.
func TestManual(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, false)
	s.box("head2").manual = true
	s.request(run)
	s.until(2000, hasEnded)
	if u := s.record(); !u.InProgress() || !strings.Contains(u.Status.Reason, "install v2 on its host") {
		t.Errorf("%+v, after %v", u.Status, s.starts)
	}
	s.update(func(tx *store.Tx) error {
		h, err := s.tables.Heads.In(tx).Get("head2")
		if err != nil {
			return err
		}
		h.Status.Version = "v2"
		return s.tables.Heads.In(tx).Put(h)
	})
	s.want(s.until(300, hasEnded), trivet.UpgradeDone, newProgram)
}

// The cluster's version is raised by the last step only, which says what that adds.
func TestClusterVersion(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, false)
	s.update(func(tx *store.Tx) error {
		u, err := s.tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		u.Status.ClusterVersion = trivet.CurrentRelease
		return s.tables.Sites.In(tx).Put(u)
	})
	s.request(func(u *trivet.UpgradeSpec) { run(u); u.Release = "99.0" })
	u := s.until(300, hasEnded)
	want := "of release " + string(trivet.CurrentRelease) + ", and not 99.0"
	if !u.InProgress() || !strings.Contains(u.Status.Reason, want) {
		t.Errorf("it is complete although the heads are of release %s: %+v", trivet.CurrentRelease, u.Status)
	}
	for _, name := range []string{"head0", "head1"} {
		s.update(func(tx *store.Tx) error {
			h, err := s.tables.Heads.In(tx).Get(name)
			if err != nil {
				return err
			}
			h.Status.Release = "99.0"
			return s.tables.Heads.In(tx).Put(h)
		})
	}
	s.want(s.until(30, hasEnded), trivet.UpgradeDone, newProgram)
	site, err := s.tables.Sites.Get(trivet.SiteName)
	if err != nil || site.Status.ClusterVersion != "99.0" {
		t.Errorf("%+v, %v", site, err)
	}
	adds := "is 0.3 instead of 0.2, which adds key, machine.spec.bmc.console"
	if text := enables("0.2", "0.3"); !strings.Contains(text, adds) {
		t.Errorf("%s", text)
	}
}

// An upgrade that one head performs has used all that is declared.
func TestDeclaration(t *testing.T) {
	t.Parallel()
	tables := storetest.New(t, state.New)
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		s := newSiteIn(t, tables, 1, false)
		release := trivet.Release(fmt.Sprint("99.", n))
		s.update(func(tx *store.Tx) error {
			h, err := tables.Heads.In(tx).Get("head0")
			if err != nil {
				return err
			}
			h.Status.Release = release
			return tables.Heads.In(tx).Put(h)
		})
		s.request(func(u *trivet.UpgradeSpec) { run(u); u.Release = release })
		c := s.box("head0").ctl
		c.Tables = tables.Within(scope)
		s.now = s.now.Add(time.Minute)
		for range 40 {
			if _, err := c.Reconcile(ctx, trivet.UpgradeName); err != nil {
				return err
			}
			s.now = s.now.Add(time.Second)
		}
		if u := s.record(); u.Status.Phase != trivet.UpgradeDone {
			return fmt.Errorf("it is %+v", u.Status)
		}
		return nil
	})
}

// Whatever fails and whenever, at most one head starts again at a time, and all that respond run one program at the
// end.
func TestProperty(t *testing.T) {
	t.Parallel()
	tables := storetest.New(t, state.New)
	rapid.Check(t, func(r *rapid.T) {
		s := newSiteIn(t, tables, rapid.IntRange(1, 5).Draw(r, "voters"), rapid.Bool().Draw(r, "witness"))
		s.leader = rapid.SampledFrom(s.boxes).Draw(r, "leader").name
		for _, b := range s.boxes {
			b.breaks = rapid.IntRange(0, 9).Draw(r, "breaks") == 0
		}
		s.request(run)
		for range 30 {
			b := rapid.SampledFrom(s.boxes).Draw(r, "box")
			switch rapid.IntRange(0, 9).Draw(r, "what") {
			case 0:
				s.lose(b, true)
			case 1:
				s.broken = []string{"dhcp"}
			case 2:
				s.request(func(u *trivet.UpgradeSpec) { u.Paused = !u.Paused })
			case 3:
				s.leader = b.name
			case 4:
				s.request(func(u *trivet.UpgradeSpec) { u.Rollback = true })
			default:
				s.lose(b, false)
				s.broken = nil
			}
			s.until(rapid.IntRange(1, 20).Draw(r, "rounds"), hasEnded)
		}
		for _, b := range s.boxes {
			s.lose(b, false)
		}
		s.broken = nil
		s.request(func(u *trivet.UpgradeSpec) { u.Paused = false })
		u := s.until(2000, hasEnded)
		s.until(30, func(*trivet.Upgrade) bool { return false }) // heads that returned late go back
		if u.InProgress() || s.most > 1 {
			r.Fatalf("%+v: %+v; %d at the same time", u.Spec, u.Status, s.most)
		}
		want := newProgram
		if u.Status.Phase == trivet.UpgradeReverted {
			want = oldProgram
		}
		for _, b := range s.boxes {
			if b.running != want {
				r.Fatalf("%s runs %s after %+v", b.name, b.running, u.Status)
			}
		}
	})
}
