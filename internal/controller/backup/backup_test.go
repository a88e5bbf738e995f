package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// site is a cluster with a schedule, and the controller of its head.
type site struct {
	*testing.T
	*Controller
	dir    string // of the schedule
	source *recovery.Source
	uid    string // of the schedule
	bundle auth.Bundle
}

const testName = "nightly"

func newSite(t *testing.T) *site {
	t.Helper()
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	_, recipient, err := recovery.NewKey("c1", keys.CA.Trust(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	member := storetest.Member(t)
	tables := storetest.On(t, member, store.Options{Head: "head0", Cipher: keys.Values()}, state.New)
	s := &site{T: t, dir: filepath.Join(t.TempDir(), "site1")}
	s.source = recovery.NewSource(recovery.SourceConfig{Dir: t.TempDir(), Member: member, Tables: tables, Keys: keys,
		Head: func() recovery.HeadConfig { return recovery.HeadConfig{Name: "head0"} }})
	s.Controller = New(Config{Tables: tables, Head: "head0", Rank: func(string) int { return 0 }, Dir: filepath.Dir(s.dir),
		Live: func(string) bool { return true }, From: func(uid string) Source { s.uid = uid; return s },
		ClusterKeys: keys, Prove: recovery.Prove, Temp: filepath.Join(t.TempDir(), "proof"), Record: s.source.Record,
		Log: slog.New(slog.DiscardHandler)})
	s.must(os.Mkdir(s.dir, 0o700))
	s.update(func(tx *store.Tx) error {
		return tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	s.update(func(tx *store.Tx) error {
		conf, err := tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		conf.Spec.RecoveryKey = recipient
		return errors.Join(tables.Sites.In(tx).Put(conf), tables.Schedules.In(tx).Put(&trivet.BackupSchedule{
			Meta: trivet.Meta{Name: testName},
			Spec: trivet.BackupScheduleSpec{Every: trivet.Duration(time.Hour), Keep: 1, Directory: "site1"}}))
	})
	return s
}

// Backup and Blob are the head.
func (s *site) Backup(ctx context.Context, contents bool) (io.ReadCloser, error) {
	b, err := s.source.Begin(ctx, contents, s.uid)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	s.bundle = b.Bundle()
	var file bytes.Buffer
	_, err = b.WriteTo(&file)
	return io.NopCloser(&file), err
}

func (s *site) Blob(context.Context, string) (io.ReadCloser, error) { return nil, trivet.ErrNotFound }

func (s *site) Bundle() auth.Bundle { return s.bundle }

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) update(do func(tx *store.Tx) error) {
	s.Helper()
	_, err := s.Tables.Store.Update(s.Context(), do)
	s.must(err)
}

// change changes the spec, so that a backup is due.
func (s *site) change() {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		is, err := s.Tables.Schedules.In(tx).Get(testName)
		if err != nil {
			return err
		}
		is.Spec.Every += trivet.Duration(time.Minute)
		return s.Tables.Schedules.In(tx).Put(is)
	})
}

func (s *site) reconcile() (after time.Duration) {
	s.Helper()
	after, err := s.Reconcile(s.Context(), testName)
	s.must(err)
	return after
}

func (s *site) status() trivet.BackupScheduleStatus {
	s.Helper()
	is, err := s.Tables.Schedules.Get(testName)
	s.must(err)
	return is.Status
}

// backups returns the names of the backups in the directory.
func (s *site) backups() (names []string) {
	s.Helper()
	all, err := recovery.List(s.Context(), recovery.Location{Path: s.dir})
	s.must(err)
	for _, e := range all {
		names = append(names, e.Name)
	}
	return names
}

// events returns the reasons of the schedule's events, in their order.
func (s *site) events() (reasons []string) {
	s.Helper()
	for seq := int64(1); ; seq++ {
		e, err := s.Tables.Events.Get(s.Context(), trivet.BackupEventName(testName, seq))
		if errors.Is(err, trivet.ErrNotFound) {
			return reasons
		}
		s.must(err)
		reasons = append(reasons, e.Spec.Reason)
	}
}

// A new schedule makes a backup at once, proves it, and the next one after its interval, or when its spec is changed.
// Older ones are removed.
func TestScheduleMakesBackups(t *testing.T) {
	s := newSite(t)
	s.reconcile()
	st, first := s.status(), s.backups()
	if len(first) != 1 || st.State != trivet.BackupActive || st.Last == nil || st.Last.Backup != first[0] || st.Head != "head0" {
		t.Fatalf("%q, %+v", first, st)
	}
	if wait := time.Until(st.Next); wait < 59*time.Minute || wait > time.Hour {
		t.Errorf("the next one is due in %v", wait)
	}
	conf, err := s.Tables.Sites.Get(trivet.SiteName)
	s.must(err)
	if b := conf.Status.Backups; b.Created == nil || b.Verified == nil || b.Verified.Backup != first[0] {
		t.Errorf("the site has %+v", b)
	}
	s.reconcile()
	if again := s.backups(); len(again) != 1 || again[0] != first[0] {
		t.Errorf("before it is due: %q", again)
	}
	s.change()
	s.reconcile()
	if second := s.backups(); len(second) != 1 || second[0] == first[0] || s.status().Last.Backup != second[0] {
		t.Errorf("after a change: %q, %+v", second, s.status())
	}
	if got := s.events(); len(got) != 0 {
		t.Errorf("events %q", got)
	}
}

// A head that ranks later makes none.
func TestOtherHeadMakesThem(t *testing.T) {
	s := newSite(t)
	s.Rank = func(string) int { return 1 }
	if after := s.reconcile(); len(s.backups()) != 0 || after > interval {
		t.Errorf("made %q, next in %v", s.backups(), after)
	}
}

// A failure is a state with its reason, and one event; attempts go on at growing intervals. A success is another event.
func TestFailures(t *testing.T) {
	s := newSite(t)
	s.must(os.Remove(s.dir))
	for failures := 1; failures <= 3; failures++ {
		s.reconcile()
		st := s.status()
		if st.State != trivet.BackupFailing || st.Failures != failures || st.Reason == "" || st.Last != nil {
			t.Fatalf("%+v", st)
		}
		if wait, want := time.Until(st.Next), time.Minute<<(failures-1); wait > want || wait < want-5*time.Second {
			t.Errorf("after %d failures the next attempt is in %v", failures, wait)
		}
		s.change()
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Error("the directory was created: it may be on a disk that is not mounted")
	}
	s.must(os.Mkdir(s.dir, 0o700))
	s.reconcile()
	if st := s.status(); st.State != trivet.BackupActive || st.Failures != 0 || st.Reason != "" {
		t.Errorf("%+v", st)
	}
	if got := s.events(); len(got) != 2 || got[0] != trivet.ReasonBackupFailing || got[1] != trivet.ReasonBackupRecovered {
		t.Errorf("events %q", got)
	}
}

// Backups that are not proven do not replace the last one that was.
func TestUnprovenBackups(t *testing.T) {
	s := newSite(t)
	s.reconcile()
	proven := s.backups()[0]
	s.Prove = func(context.Context, recovery.Proof) (recovery.Report, error) {
		return recovery.Report{Found: 1, Problems: []string{"machine m1: it is wrong"}}, nil
	}
	for range 3 {
		s.change()
		s.reconcile()
	}
	st := s.status()
	if st.State != trivet.BackupFailing || st.Last == nil || st.Last.Backup != proven {
		t.Errorf("%+v", st)
	}
	if all := s.backups(); len(all) != 2 || all[1] != proven {
		t.Errorf("left %q; want the newest one and %s", all, proven)
	}
	if st.Running {
		t.Error("no attempt is running")
	}
	conf, err := s.Tables.Sites.Get(trivet.SiteName)
	s.must(err)
	if b := conf.Status.Backups; b.Verified == nil || b.Verified.Backup != proven || b.Created.Backup == proven {
		t.Errorf("the site has %+v", b)
	}
}

// While another process writes to the place, the backup waits. That is a failure when it has lasted.
func TestPlaceInUse(t *testing.T) {
	s := newSite(t)
	busy, err := s.source.Begin(t.Context(), false, "")
	s.must(err)
	defer busy.Close()
	s.reconcile()
	if st := s.status(); st.State != "" || st.Running || time.Until(st.Next) > time.Minute {
		t.Errorf("%+v", st)
	}
	s.set(func(st *trivet.BackupScheduleStatus) { st.Failures, st.Next = busyLimit, time.Time{} })
	s.reconcile()
	if st := s.status(); st.State != trivet.BackupFailing || !strings.Contains(st.Reason, "another backup") {
		t.Errorf("%+v", st)
	}
}

// set changes the status.
func (s *site) set(do func(st *trivet.BackupScheduleStatus)) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		is, err := s.Tables.Schedules.In(tx).Get(testName)
		if err != nil {
			return err
		}
		do(&is.Status)
		return s.Tables.Schedules.In(tx).Put(is)
	})
}

// A head makes no backup while another one makes it, unless that one is lost, and none of a schedule that is suspended.
func TestOneHeadAtATime(t *testing.T) {
	s := newSite(t)
	s.set(func(st *trivet.BackupScheduleStatus) { st.Head, st.Running = "head1", true })
	s.reconcile()
	if len(s.backups()) != 0 {
		t.Error("another head is making it")
	}
	s.Live = func(string) bool { return false }
	s.reconcile()
	if st := s.status(); len(s.backups()) != 1 || st.Running || st.Head != "head0" {
		t.Errorf("the other head is lost: %+v", st)
	}
	s.Rank = func(string) int { return 1 }
	s.set(func(st *trivet.BackupScheduleStatus) { st.Running, st.Failures, st.Next = true, 1, time.Time{} })
	s.reconcile()
	if st := s.status(); st.Running || st.Failures != 0 {
		t.Errorf("this head has restarted meanwhile: %+v", st)
	}
	s.Rank = func(string) int { return 0 }
	s.update(func(tx *store.Tx) error {
		is, err := s.Tables.Schedules.In(tx).Get(testName)
		if err != nil {
			return err
		}
		is.Spec.Suspend = true
		return s.Tables.Schedules.In(tx).Put(is)
	})
	s.reconcile()
	if names := s.backups(); len(names) != 1 || s.status().Failures != 0 {
		t.Errorf("suspended, and there are %q", names)
	}
}

// An attempt that never ends is counted, and a later one is due: the next head makes it after a few.
func TestLostAttempts(t *testing.T) {
	s := newSite(t)
	first, second := false, false
	s.Rank = func(key string) int {
		first, second = first || key == testName+"/0", second || key == testName+"/1"
		return 0
	}
	for n := range 3 {
		is, err := s.Tables.Schedules.Get(testName)
		s.must(err)
		mine, err := s.begin(t.Context(), is)
		s.must(err)
		if st := s.status(); mine == nil || !st.Running || st.Failures != n+1 || time.Until(st.Next) > time.Minute<<n {
			t.Fatalf("%+v", st)
		}
		if again, err := s.begin(t.Context(), is); err != nil || again != nil {
			t.Errorf("begun twice: %+v, %v", again, err)
		}
	}
	s.set(func(st *trivet.BackupScheduleStatus) { st.Head, st.Next = "head1", time.Time{} })
	s.Live = func(string) bool { return false }
	s.reconcile()
	if first || !second {
		t.Errorf("ranks are asked for the first attempts: %v, for others: %v", first, second)
	}
}

// A disk that does not answer ends no process, and its attempt is reported. No other one of the schedule begins.
func TestHungAttempt(t *testing.T) {
	s := newSite(t)
	hang := make(chan struct{})
	defer close(hang)
	s.Prove = func(context.Context, recovery.Proof) (recovery.Report, error) {
		<-hang
		return recovery.Report{}, nil
	}
	s.maxTime = time.Second
	s.grace = 100 * time.Millisecond
	s.reconcile()
	if st := s.status(); st.State != trivet.BackupFailing || !strings.Contains(st.Reason, "does not end") {
		t.Errorf("%+v", st)
	}
	s.change()
	s.reconcile()
	if st := s.status(); st.Failures != 1 {
		t.Errorf("another attempt began: %+v", st)
	}
}

// Where only old backups cannot be removed, the new one counts, and the schedule fails.
func TestOldOnesRemain(t *testing.T) {
	s := newSite(t)
	s.Prove = func(ctx context.Context, p recovery.Proof) (recovery.Report, error) {
		r, err := recovery.Prove(ctx, p)
		s.must(os.Remove(filepath.Join(s.dir, ".lock")))
		s.must(os.Mkdir(filepath.Join(s.dir, ".lock"), 0o700))
		return r, err
	}
	s.reconcile()
	st := s.status()
	if st.State != trivet.BackupFailing || !strings.Contains(st.Reason, "old backups are not removed") || st.Last == nil ||
		time.Until(st.Next) < 59*time.Minute || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

// Without a recovery key there is nothing to wait for.
func TestNoRecoveryKey(t *testing.T) {
	s := newSite(t)
	s.update(func(tx *store.Tx) error {
		conf, err := s.Tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		conf.Spec.RecoveryKey = ""
		return s.Tables.Sites.In(tx).Put(conf)
	})
	s.reconcile()
	if st := s.status(); st.State != trivet.BackupFailing || !strings.Contains(st.Reason, "trivet backup key") {
		t.Errorf("%+v", st)
	}
}

// The time of the next backup counts for the spec that it was decided for, and not where a clock was far ahead.
func TestWaitOf(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		next time.Duration
		gen  int64
		want time.Duration
	}{
		{time.Minute, 3, time.Minute}, {time.Hour, 3, time.Hour}, {-time.Minute, 3, -time.Minute},
		{time.Minute, 2, 0}, {1000 * time.Hour, 3, 0},
	} {
		b := &trivet.BackupSchedule{Meta: trivet.Meta{Generation: 3},
			Spec:   trivet.BackupScheduleSpec{Every: trivet.Duration(time.Hour)},
			Status: trivet.BackupScheduleStatus{Generation: test.gen, Next: now.Add(test.next)}}
		if got := waitOf(b, now); got != test.want {
			t.Errorf("next in %v, generation %d: wait %v, want %v", test.next, test.gen, got, test.want)
		}
	}
}

// The controller works within its declaration, which has nothing more.
func TestDeclaration(t *testing.T) {
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, _ int) error {
		s := newSite(t)
		s.Tables = s.Tables.Within(scope)
		s.must(os.Remove(s.dir)) // the failure is an event
		if _, err := s.Reconcile(ctx, testName); err != nil {
			return err
		}
		s.must(os.Mkdir(s.dir, 0o700))
		s.change()
		if _, err := s.Reconcile(ctx, testName); err != nil {
			return err
		}
		if st := s.status(); st.State != trivet.BackupActive {
			return errors.New(st.Reason)
		}
		_, err := s.bucket(&trivet.Bucket{Secret: "none"})
		if !errors.Is(err, trivet.ErrNotFound) {
			return err
		}
		return nil
	})
}
