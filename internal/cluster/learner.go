package cluster

import (
	"context"
	"time"

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
// elect another one: a learner would take the leader that it knew last for alive forever. The next heartbeat of a
// leader makes it known again.
func (m *Member) watchLeader() {
	ctx, cancel := m.untilClosing()
	defer cancel()
	began := time.Now()
	for wait.Sleep(ctx, learnerInterval) == nil {
		leader := m.Leader()
		catchesUp := m.Current().IsZero() && time.Since(began) < catchUpTimeout // a read waits until then
		if !m.IsLearner() || leader == 0 || catchesUp || m.leaderResponds(ctx) || ctx.Err() != nil {
			continue
		}
		m.log.Warn("the leader of the store is not heard any more", "leader", FormatID(leader))
		m.step(ctx, raftpb.MsgForgetLeader, leader, 0) // in any term: one that has joined may have applied no entry yet
	}
}

// leaderResponds reports whether the leader answers a read.
func (m *Member) leaderResponds(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, max(learnerTimeout, 2*m.election))
	defer cancel()
	return m.readThrough(ctx, 1) == nil || m.fatal.Err() != nil
}
