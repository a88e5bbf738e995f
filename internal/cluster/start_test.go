package cluster

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A read at the moment in which a new leader is named fails; a member has started when a read is answered.
func TestStartAnswersReads(t *testing.T) {
	m, err := Start(t.Context(), Config{Dir: t.TempDir(), Name: "head0", Heartbeat: MinHeartbeat, Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	reads := 0
	if err := m.waitReadable(t.Context(), func(ctx context.Context) error {
		if reads++; reads <= 2 {
			return rpctypes.ErrLeaderChanged
		}
		return m.read(ctx)
	}); err != nil || reads != 3 {
		t.Errorf("after %d reads: %v", reads, err)
	}
}
