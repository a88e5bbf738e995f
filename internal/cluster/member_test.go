package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

func start(t *testing.T, dir string) *cluster.Member {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := cluster.Start(ctx, cluster.Config{Dir: dir, Name: "head0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestRestartKeepsDataAndIdentity(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := start(t, dir)
	id := m.ClusterID()
	if _, err := m.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	m.Close()
	m = start(t, dir)
	got, err := m.Client().Get(t.Context(), "k")
	if err != nil || len(got.Kvs) != 1 || m.ClusterID() != id {
		t.Errorf("after a restart: %v, %v, cluster %s, want %s", got, err, m.ClusterID(), id)
	}
}

func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir)
	_, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Name: "head0"})
	if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a second start: %v; want it refused, naming process %d", err, os.Getpid())
	}
}

// etcd's listener, which is unused, is a file that only this user can reach, and no abstract socket.
func TestListensOnAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir)
	if info, err := os.Stat(filepath.Join(dir, "run", "peer")); err != nil || info.Mode().Type() != os.ModeSocket {
		t.Errorf("%v, %v", info, err)
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/" + strings.Repeat("long/", 30)
	if m := start(t, dir); !m.HasLeader() {
		t.Error("no leader")
	}
}
