package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/storetest"
)

// stopped returns the directory of a member that has ended: its database has only /k0 to /k9, and its log also /late0
// to /late9, which it does not know to be committed.
func stopped(t *testing.T) (dir string, revision int64) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	cfg := cluster.Config{Dir: dir, Name: "head1", Reserve: -1, Heartbeat: storetest.Heartbeat}
	run := func(prefix string) {
		m, err := cluster.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			put(t, m, fmt.Sprint(prefix, i), "value")
		}
		revision = m.Revision()
		m.Close()
	}
	db, old := filepath.Join(dir, "etcd/member/snap/db"), filepath.Join(dir, "old")
	run("/k")
	index, err := cluster.LastIndex(dir)
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, db, old)
	run("/late")
	if err := os.Rename(old, db); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "etcd/member/wal")
	snaps, err := wal.ValidSnapshotEntries(zap.NewNop(), log)
	if err != nil {
		t.Fatal(err)
	}
	w, err := wal.Open(zap.NewNop(), log, snaps[len(snaps)-1])
	if err != nil {
		t.Fatal(err)
	}
	_, state, _, err := w.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	err = w.Save(&raftpb.HardState{Term: new(state.GetTerm()), Vote: new(state.GetVote()), Commit: new(index)}, nil)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, revision
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a dead member has in its log is salvaged, also what it does not know to be committed, and with a torn end what
// is before that. The directory is not changed, and a restored member has revisions above all of them and no history.
func TestSalvage(t *testing.T) {
	for name, tear := range map[string]int64{"whole": 0, "torn": 1} {
		t.Run(name, func(t *testing.T) {
			dir, revision := stopped(t)
			if tear > 0 {
				tearLog(t, dir)
			}
			before := sums(t, dir)
			to := filepath.Join(t.TempDir(), "salvaged")
			s, err := cluster.Salvage(t.Context(), dir, to,
				cluster.Config{Name: "head1", Heartbeat: storetest.Heartbeat})
			if err != nil {
				t.Fatal(err)
			}
			if after := sums(t, dir); after != before {
				t.Errorf("it has changed the directory:\n%s\n%s", before, after)
			}
			if s.Torn != (tear > 0) || s.Written.IsZero() {
				t.Errorf("salvaged %+v", s)
			}
			f, err := os.Open(s.Database)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			const jump = 1 << 40
			cfg := cluster.Config{Dir: filepath.Join(t.TempDir(), "store"), Name: "r", Heartbeat: storetest.Heartbeat,
				Jump: jump, Reserve: -1}
			if err := cluster.Restore(t.Context(), cfg, f); err != nil {
				t.Fatal(err)
			}
			for range 2 { // also after another start
				checkSalvaged(t, cfg, revision, jump, tear > 0)
			}
		})
	}
}

// What is salvaged of a learner is all that it had, and continues alone, though a learner never does.
func TestSalvageLearner(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, learner := s.learner()
	for i := range 20 {
		if _, err := first.Client().Put(t.Context(), fmt.Sprint("/k", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	s.eventually("catch up", learner.CatchUp)
	revision := learner.Revision()
	learner.running.Store(nil)
	learner.Close()
	first.running.Store(nil)
	first.Close()
	salvaged, err := cluster.Salvage(t.Context(), learner.cfg.Dir, filepath.Join(t.TempDir(), "salvaged"),
		cluster.Config{Name: "head1", Heartbeat: storetest.Heartbeat})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(salvaged.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cfg := cluster.Config{Dir: filepath.Join(t.TempDir(), "store"), Name: "r", Heartbeat: storetest.Heartbeat,
		Jump: 1 << 40, Reserve: -1}
	if err := cluster.Restore(t.Context(), cfg, f); err != nil {
		t.Fatal(err)
	}
	m, err := cluster.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	got, err := m.Client().Get(t.Context(), "/k", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || got.Count != 20 || m.Revision() < revision+cfg.Jump {
		t.Errorf("%+v, %v, at revision %d; want 20 values of %d", got, err, m.Revision(), revision)
	}
}

// The data of a member that was removed is refused: etcd would end the process.
func TestSalvageRemovedMember(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, learner := s.learner()
	if err := first.Remove(t.Context(), learner.ID()); err != nil {
		t.Fatal(err)
	}
	s.eventually("it stops", func(context.Context) error {
		select {
		case <-learner.Failed():
			return nil
		default:
			return errors.New("it runs")
		}
	})
	learner.running.Store(nil)
	learner.Close()
	_, err := cluster.Salvage(t.Context(), learner.cfg.Dir, filepath.Join(t.TempDir(), "salvaged"),
		cluster.Config{Name: "head1", Heartbeat: storetest.Heartbeat})
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "was removed from the cluster") {
		t.Errorf("salvaged: %v", err)
	}
}

func checkSalvaged(t *testing.T, cfg cluster.Config, revision, jump int64, torn bool) {
	t.Helper()
	m, err := cluster.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if len(m.Peers()) != 1 {
		t.Errorf("its members are %+v", m.Peers())
	}
	got := values(t, m)
	want := 20
	if torn {
		want = 19 // the last write was being written
	}
	if len(got.Kvs) != want || got.Header.Revision < revision+jump-1 {
		t.Errorf("it has %d values at revision %d, want %d at %d or more", len(got.Kvs), got.Header.Revision, want,
			revision+jump-1)
	}
	watch := m.Client().Watch(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithRev(revision))
	if w := <-watch; w.CompactRevision == 0 {
		t.Errorf("a watch from revision %d is served: %+v", revision, w)
	}
}

// tearLog cuts the end of a log as a loss of power during its last write does: the last entry and what follows are
// partly zero.
func tearLog(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "etcd/member/wal/*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(err, logs)
	}
	path := logs[len(logs)-1]
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for i := range text {
		if i+len("/late9") <= len(text) && string(text[i:i+len("/late9")]) == "/late9" {
			last = i
		}
	}
	if last < 0 {
		t.Fatal("the last write is not in the log")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(last + 3)); err != nil {
		t.Fatal(err)
	}
}

// sums returns digests of all files.
func sums(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "cd "+dir+" && find etcd -type f | sort | xargs sha256sum").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A log with a wrong byte within is not salvaged, and the error says what else may be.
func TestSalvageRefusesDamage(t *testing.T) {
	dir, _ := stopped(t)
	logs, _ := filepath.Glob(filepath.Join(dir, "etcd/member/wal/*.wal"))
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		if string(text[i:i+3]) == "/k5" {
			text[i]++
			break
		}
	}
	if err := os.WriteFile(logs[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = cluster.Salvage(t.Context(), dir, filepath.Join(t.TempDir(), "s"), cluster.Config{Name: "head1"})
	var detailed *trivet.Error
	if !errors.As(err, &detailed) || detailed.Hint == "" {
		t.Errorf("a damaged log: %v", err)
	}
}
