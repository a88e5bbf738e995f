package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// freeURL is a URL on loopback that nobody uses.
func freeURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// three starts a cluster of three members in this process, which talk over loopback.
func three(t *testing.T) []*cluster.Member {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{}
	for i := range 3 {
		all[fmt.Sprint("head", i)] = freeURL(t)
	}
	members := make([]*cluster.Member, 3)
	for i := range members {
		name := fmt.Sprint("head", i)
		m, err := cluster.Open(t.Context(), cluster.Config{
			Dir: filepath.Join(dir, name), Name: name, Listen: all[name], Members: all,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		members[i] = m
	}
	for _, m := range members {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := m.AwaitLeader(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	return members
}

func TestWithoutQuorumReadsGoOn(t *testing.T) {
	m := three(t)
	if m[0].ClusterID() != m[1].ClusterID() || m[0].ID() == m[1].ID() {
		t.Errorf("clusters %s and %s, members %x and %x", m[0].ClusterID(), m[1].ClusterID(), m[0].ID(), m[1].ID())
	}
	if _, err := m[0].Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if resp := <-m[2].Client().Watch(t.Context(), "k", clientv3.WithRev(1)); resp.Err() != nil || len(resp.Events) != 1 {
		t.Fatalf("watch: %+v", resp)
	}
	m[0].Close()
	m[1].Close()
	for m[2].HasLeader() {
		time.Sleep(10 * time.Millisecond) // the loss is told to nobody
	}
	got, err := m[2].Client().Get(t.Context(), "k", clientv3.WithSerializable())
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("a read without a quorum: %v, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := m[2].AwaitLeader(ctx); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("awaiting a leader: %v", err)
	}
	closed := make(chan struct{})
	go func() { m[2].Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("a member without a leader does not close")
	}
}
