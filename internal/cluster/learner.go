package cluster

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/trivet-project/trivet/internal/wait"
)

const (
	// learnerInterval is how often a learner reads through the leader, and learnerTimeout how long that may take, unless
	// an election takes longer.
	learnerInterval = time.Second
	learnerTimeout  = 3 * time.Second
)

// watchLeader makes a learner forget a leader that it does not hear any more. Raft does that for voters only, as these
// elect another one: a learner would take the leader that it knew last for alive forever. The next heartbeat of a leader
// makes it known again.
func (m *Member) watchLeader() {
	ctx, cancel := m.untilClosing()
	defer cancel()
	began := time.Now()
	for wait.Sleep(ctx, learnerInterval) == nil {
		leader := m.Leader()
		catchesUp := m.Current().IsZero() && time.Since(began) < catchUpTimeout // a read waits for what it does not have yet
		if !m.IsLearner() || leader == 0 || catchesUp || m.readsThrough(ctx) || ctx.Err() != nil {
			continue
		}
		m.log.Warn("the leader of the store is not heard any more", "leader", FormatID(leader))
		m.step(ctx, raftpb.MsgForgetLeader, leader, 0) // in any term: one that has joined may have applied no entry yet
	}
}

// readsThrough reports whether the leader answers a read, which needs a quorum.
func (m *Member) readsThrough(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, max(learnerTimeout, 2*m.election))
	defer cancel()
	read := make(chan error, 1)
	go func() {
		_, err := m.client.Get(ctx, compactedKey, clientv3.WithCountOnly())
		read <- err
	}()
	select {
	case err := <-read:
		return err == nil
	case <-m.fatal.done: // the client may block from then on, and Close would wait
		return true
	}
}
