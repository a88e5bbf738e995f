package cluster

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The alarm of a quota of etcd, which refuses all writes and which etcd never ends, is cleared.
func TestClearNoSpace(t *testing.T) {
	t.Parallel()
	m, err := Start(t.Context(), Config{Dir: t.TempDir(), Name: "head0", Heartbeat: MinHeartbeat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	_, err = m.etcd.Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{MemberID: m.ID(),
		Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Client().Put(t.Context(), "k", "v"); err == nil {
		t.Fatal("the alarm has no effect")
	}
	if err := m.ClearNoSpace(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}
