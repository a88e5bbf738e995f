package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/trivet-project/trivet/internal/wait"
)

// succession is what this member did because the processes of leaders had ended.
type succession struct {
	count atomic.Int64

	mu   sync.Mutex
	term uint64 // the last one whose leader this member has forgotten; guarded by mu
}

// begin reports whether the leader of a term may be forgotten, which is once.
func (s *succession) begin(term uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term <= s.term {
		return false
	}
	s.term = term
	s.count.Add(1)
	return true
}

// LastTerm returns the term of the last entry of the log that this member has applied since it started; 0: none yet.
func (m *Member) LastTerm() uint64 { return m.etcd.Server.Term() }

// Successions returns how often this member has forgotten a leader whose process had ended.
func (m *Member) Successions() int64 { return m.succession.count.Load() }

// Succeed is called when the process of another member has ended. If that one is the leader, this member forgets it,
// and becomes a candidate, at once instead of after Config.Election without heartbeats; once in a term. It returns when
// it knows another leader, at the latest after Config.Election.
//
// A term ends only where a majority does so: the pre-vote of a candidate is ignored by members that know a leader and
// have heard from it within Config.Election. See docs/decisions/0010-succession.md.
func (m *Member) Succeed(ctx context.Context, ended uint64) {
	// The term is read first: the leader is then of that term or of a later one, in which raft ignores these messages.
	term := m.LastTerm()
	if ended == m.ID() || m.Leader() != ended || !m.succession.begin(term) {
		return
	}
	m.log.Warn("the process of the store's leader has ended; electing another leader",
		"leader", FormatID(ended), "term", term)
	ctx, cancel := context.WithTimeout(ctx, m.election)
	defer cancel()
	m.step(ctx, raftpb.MsgForgetLeader, ended, term)
	for pause, interval := m.candidacy(ended); wait.Sleep(ctx, pause) == nil; pause = interval {
		if leader := m.Leader(); m.LastTerm() != term || leader != 0 && leader != ended {
			m.log.Info("another leader of the store is elected", "leader", FormatID(leader))
			return
		}
		if !m.IsLearner() {
			// A local message is dropped unless it comes from one of the member's own threads.
			m.step(ctx, raftpb.MsgHup, raft.LocalAppendThread, term)
		}
	}
}

// step passes a message to this member's raft, which ignores it in a later term.
func (m *Member) step(ctx context.Context, kind raftpb.MessageType, from, term uint64) {
	msg := &raftpb.Message{Type: kind.Enum(), From: new(from), To: new(m.ID()), Term: new(term)}
	if err := m.etcd.Server.Process(ctx, msg); err != nil {
		m.log.Debug("the member takes no message", "message", kind, "error", err)
	}
}

// candidacy returns after what time this member becomes a candidate, and at what intervals from then on. The voters do
// so one after the other, by their IDs, so that they do not split the votes.
func (m *Member) candidacy(ended uint64) (first, interval time.Duration) {
	var rank, voters time.Duration
	for _, p := range m.Peers() {
		if p.Learner || p.ID == ended {
			continue
		}
		voters++
		if p.ID < m.ID() {
			rank++
		}
	}
	return m.heartbeat/10 + rank*m.heartbeat/2, voters * m.heartbeat / 2
}
