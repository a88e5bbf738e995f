package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A member that is restored from a snapshot has all values at their revisions, also after a restart, and none that was
// written later.
func TestSnapshotAndRestore(t *testing.T) {
	m, dir := storetest.Member(t), t.TempDir()
	for i := range 20 {
		put(t, m, fmt.Sprintf("/k%d", i%7), fmt.Sprint("value", i))
	}
	snap, err := m.Snapshot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.File.Close()
	before := values(t, m)
	if want := before.Header.Revision; snap.Revision != want {
		t.Errorf("the snapshot is of revision %d, not %d", snap.Revision, want)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("a file is left: %s", left[0].Name())
	}
	put(t, m, "/later", "x")
	cfg := cluster.Config{Dir: filepath.Join(t.TempDir(), "store"), Name: "restored", Token: "c1",
		Heartbeat: storetest.Heartbeat}
	if err := cluster.Restore(t.Context(), cfg, snap.File); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		again, err := cluster.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if peers := again.Peers(); len(peers) != 1 || peers[0].Name != "restored" {
			t.Errorf("its members are %+v", peers)
		}
		got := values(t, again)
		if fmt.Sprint(got.Kvs) != fmt.Sprint(before.Kvs) {
			t.Errorf("restored %v, want %v", got.Kvs, before.Kvs)
		}
		again.Close()
	}
	again := storetest.MemberWith(t, cfg)
	put(t, again, "/k1", "new")
	if got := values(t, again).Header.Revision; got <= snap.Revision {
		t.Errorf("revision %d after a write to a restored store of revision %d", got, snap.Revision)
	}
}

// The revision of a store whose last change was a deletion, and is compacted, is known still.
func TestSnapshotOfCompactedStore(t *testing.T) {
	m := storetest.Member(t)
	put(t, m, "/k", "x")
	gone, err := m.Client().Delete(t.Context(), "/k")
	if err != nil {
		t.Fatal(err)
	}
	revision := gone.Header.Revision
	if _, err := m.Client().Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	snap, err := m.Snapshot(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer snap.File.Close()
	if snap.Revision != revision {
		t.Errorf("the snapshot is of revision %d, not %d", snap.Revision, revision)
	}
	cfg := cluster.Config{Dir: filepath.Join(t.TempDir(), "store"), Name: "restored", Heartbeat: storetest.Heartbeat}
	if err := cluster.Restore(t.Context(), cfg, snap.File); err != nil {
		t.Fatal(err)
	}
	if got := values(t, storetest.MemberWith(t, cfg)).Header.Revision; got != revision {
		t.Errorf("the restored store is at revision %d, not %d", got, revision)
	}
}

func TestRestoreRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		dir  string
		from io.Reader
		want error
	}{
		"a directory that is not empty": {full, bytes.NewReader(nil), trivet.ErrExists},
		"what is no database":           {t.TempDir(), bytes.NewReader(bytes.Repeat([]byte("x"), 9000)), trivet.ErrInvalid},
		"a reader that fails":           {t.TempDir(), iotest.ErrReader(broken), broken},
	} {
		cfg := cluster.Config{Dir: c.dir, Name: "head0", Heartbeat: storetest.Heartbeat}
		if err := cluster.Restore(t.Context(), cfg, c.from); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A snapshot ends with the context of its caller.
func TestSnapshotIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := storetest.Member(t).Snapshot(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled snapshot: %v", err)
	}
}

func put(t *testing.T, m *cluster.Member, key, value string) {
	t.Helper()
	if _, err := m.Client().Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T, m *cluster.Member) *clientv3.GetResponse {
	t.Helper()
	resp, err := m.Client().Get(t.Context(), "/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
