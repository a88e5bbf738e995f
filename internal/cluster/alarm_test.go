package cluster

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/trivet-project/trivet"
)

// raise starts a member and raises an alarm of etcd.
func raise(t *testing.T, alarm etcdserverpb.AlarmType, member func(own uint64) uint64) *Member {
	t.Helper()
	m, err := Start(t.Context(), Config{Dir: t.TempDir(), Name: "head0", Heartbeat: MinHeartbeat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	_, err = m.etcd.Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{MemberID: member(m.ID()),
		Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: alarm})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Client().Put(t.Context(), "k", "v"); err == nil {
		t.Fatal("the alarm has no effect")
	}
	return m
}

// The alarms that refuse all writes, and that etcd never ends, are cleared: for a full store, and for the damaged data
// of another member.
func TestClearAlarms(t *testing.T) {
	t.Parallel()
	for alarm, member := range map[etcdserverpb.AlarmType]func(uint64) uint64{
		etcdserverpb.AlarmType_NOSPACE: func(own uint64) uint64 { return own },
		etcdserverpb.AlarmType_CORRUPT: func(own uint64) uint64 { return own + 1 },
	} {
		m := raise(t, alarm, member)
		if err := m.ClearAlarms(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Client().Put(t.Context(), "k", "v"); err != nil {
			t.Errorf("%v: %v", alarm, err)
		}
	}
}

// A member whose data differs from that of the majority stops, and says what to do.
func TestDamagedMemberStops(t *testing.T) {
	t.Parallel()
	m := raise(t, etcdserverpb.AlarmType_CORRUPT, func(own uint64) uint64 { return own })
	var terr *trivet.Error
	if err := <-m.Failed(); !errors.As(err, &terr) || !strings.Contains(terr.Hint, "head replace") {
		t.Errorf("it stopped with %v; want a hint to replace the head", err)
	}
}

// Where it is not known which members are damaged, the alarm stays: writes wait for an operator.
func TestAlarmForAllMembersStays(t *testing.T) {
	t.Parallel()
	m := raise(t, etcdserverpb.AlarmType_CORRUPT, func(uint64) uint64 { return 0 })
	if err := m.ClearAlarms(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Client().Put(t.Context(), "k", "v"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Errorf("a write: %v", err)
	}
}
