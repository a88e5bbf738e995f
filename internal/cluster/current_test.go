package cluster_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/storetest"
)

// What is certain of the data of a member is until when it had all that was acknowledged, and not when its log was
// written last: it was copied since, or the member was started again without the others.
func TestSalvagedUntil(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	m, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Name: "head1", Reserve: -1,
		Heartbeat: storetest.Heartbeat})
	if err != nil {
		t.Fatal(err)
	}
	put(t, m, "/k", "value")
	noted := filepath.Join(dir, "current")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(noted); err == nil || time.Now().After(end) {
			break
		}
	}
	m.Close()
	ended, later := time.Now(), time.Now().Add(time.Hour)
	logs, err := filepath.Glob(filepath.Join(dir, "etcd/member/wal/*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, path := range logs {
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
	}
	until := func() time.Time {
		s, err := cluster.Salvage(t.Context(), dir, filepath.Join(t.TempDir(), "salvaged"),
			cluster.Config{Name: "head1", Heartbeat: storetest.Heartbeat})
		if err != nil {
			t.Fatal(err)
		}
		return s.Written
	}
	if got := until(); got.After(ended) || got.Before(ended.Add(-time.Minute)) {
		t.Errorf("the data is certain until %s; the member ended at %s", got, ended)
	}
	for _, text := range []string{"", "yesterday"} { // of before, or not written whole
		if err := os.WriteFile(noted, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := until(); !got.Equal(later) {
			t.Errorf("with the note %q the data is certain until %s, want %s", text, got, later)
		}
	}
}
