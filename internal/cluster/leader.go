package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// HasLeader reports whether the cluster has a leader, so that writes can be served.
func (m *Member) HasLeader() bool { return m.fatal.Err() == nil && m.etcd.Server.Leader() != 0 }

// Leader returns the ID of the leader, or 0 if there is none.
func (m *Member) Leader() uint64 { return uint64(m.etcd.Server.Leader()) }

// IsLeader reports whether this member is the leader, as far as it knows.
func (m *Member) IsLeader() bool { return m.HasLeader() && m.Leader() == m.ID() }

// WaitLeader returns as soon as the cluster has a leader, or ErrUnavailable when ctx ends.
func (m *Member) WaitLeader(ctx context.Context) error {
	for {
		changed := m.etcd.Server.LeaderChangedNotify()
		if m.HasLeader() {
			return nil
		}
		select {
		case <-changed:
		case <-m.fatal.done:
			return fmt.Errorf("%w: %w", trivet.ErrUnavailable, m.fatal.Err())
		case <-m.etcd.Server.StopNotify():
			return fmt.Errorf("%w: the member has stopped", trivet.ErrUnavailable)
		case <-ctx.Done():
			return fmt.Errorf("%w: the cluster has no leader: %w", trivet.ErrUnavailable, ctx.Err())
		}
	}
}

// Term waits for a leader, for writers. It returns a channel that is closed when the next leader is elected: requests
// without a response from the former leader by then may never have one. It waits for an election; once the cluster
// has had no leader for longer than several elections, it returns ErrUnavailable at once.
func (m *Member) Term(ctx context.Context) (over <-chan struct{}, err error) {
	over = m.etcd.Server.LeaderChangedNotify()
	switch {
	case m.defragmenting.Load():
		return nil, fmt.Errorf("%w: this member is being defragmented", trivet.ErrUnavailable)
	case m.HasLeader():
		return over, nil
	}
	ctx, cancel := context.WithDeadline(ctx, m.leaderless.since(over).Add(m.electionLimit()))
	defer cancel()
	if err := m.WaitLeader(ctx); err != nil {
		return nil, err
	}
	return m.etcd.Server.LeaderChangedNotify(), nil
}

// electionLimit bounds the time of an election, with split votes, on a busy machine.
func (m *Member) electionLimit() time.Duration { return max(2*time.Second, 5*m.election) }

// leaderless records since when there has been no leader.
type leaderless struct {
	mu   sync.Mutex
	next <-chan struct{} // guarded by mu, as is from; closed by the next leader
	from time.Time
}

// since returns the time of the first call with this channel: there has been no leader since.
func (l *leaderless) since(next <-chan struct{}) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != next {
		l.next, l.from = next, time.Now()
	}
	return l.from
}

// transferLeadership makes another member the leader if this one is, and reports whether this one can stop
// gracefully. It tries one voter after the other, each for as long as an election takes.
func (m *Member) transferLeadership() bool {
	if !m.IsLeader() {
		return true
	}
	others := slices.DeleteFunc(m.Peers(), func(p Peer) bool { return p.ID == m.ID() || p.Learner })
	for _, p := range others {
		ctx, cancel := context.WithTimeout(context.Background(), m.election)
		err := m.etcd.Server.MoveLeader(ctx, m.ID(), p.ID)
		cancel()
		if err == nil || !m.IsLeader() {
			return true
		}
	}
	return len(others) == 0
}
