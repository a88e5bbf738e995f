package cluster

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

const (
	// catchUpTimeout bounds the wait of a member that joins: it gets the whole store.
	catchUpTimeout = 5 * time.Minute
	// catchUpAttempt bounds one attempt.
	catchUpAttempt = 5 * time.Second
	// catchUpInterval is the time between two attempts.
	catchUpInterval = 100 * time.Millisecond
)

// CatchUp returns when this member has everything that was acknowledged before the call, also on its disk.
func (m *Member) CatchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for {
		attempt, stop := context.WithTimeout(ctx, catchUpAttempt)
		_, err := m.client.Get(attempt, compactedKey, clientv3.WithCountOnly())
		stop()
		if err == nil {
			m.Commit()
			return nil
		}
		if wait.Sleep(ctx, catchUpInterval) != nil {
			return &trivet.Error{Op: "catch up with the other members",
				Err:  fmt.Errorf("%w: %w", trivet.ErrUnavailable, err),
				Hint: "start it again when most of the other heads are up"}
		}
	}
}

// Commit writes what this member has applied to its disk: a member that is started again continues from there.
func (m *Member) Commit() { m.etcd.Server.KV().Commit() }
