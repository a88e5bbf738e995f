package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Where all others know that the leader has ended, one of them is the leader in the next term, although none has been
// without heartbeats for as long as an election takes.
func TestSuccession(t *testing.T) {
	t.Parallel()
	s, m := slowElections(t)
	leader, others := leaderOf(t, m)
	term, ended := others[0].LastTerm(), leader.ID()
	leader.Kill()
	var succeeding sync.WaitGroup
	for _, n := range others {
		for range 2 { // it may be noticed twice
			succeeding.Go(func() { n.Succeed(t.Context(), ended) })
		}
	}
	succeeding.Wait()
	s.write(others...)
	for _, n := range others {
		if n.LastTerm() != term+1 || n.Successions() != 1 || n.Leader() == ended {
			t.Errorf("%s: term %d after %d, %d successions, leader %x after %x", n.cfg.Name, n.LastTerm(), term,
				n.Successions(), n.Leader(), ended)
		}
	}
	leaderOf(t, others)
}

// While the leader lives, one member that takes it for ended changes nothing: the others do not vote for it.
func TestNoSuccessionByOneMember(t *testing.T) {
	t.Parallel()
	s, m := slowElections(t)
	leader, others := leaderOf(t, m)
	one, other := others[0], others[1]
	term := one.LastTerm()
	for _, n := range m { // neither does the end of a member that is not the leader
		n.Succeed(t.Context(), other.ID())
		n.Succeed(t.Context(), n.ID())
		n.Succeed(t.Context(), 1)
		if n.Successions() != 0 {
			t.Errorf("%s: %d successions", n.cfg.Name, n.Successions())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second) // it stands for election three times
	defer cancel()
	one.Succeed(ctx, leader.ID())
	one.Succeed(t.Context(), leader.ID()) // again, in the same term
	s.write(m...)
	for _, n := range m {
		if n.LastTerm() != term || n.Leader() != leader.ID() {
			t.Errorf("%s: term %d after %d, leader %x after %x", n.cfg.Name, n.LastTerm(), term, n.Leader(),
				leader.ID())
		}
	}
	if one.Successions() != 1 {
		t.Errorf("%d successions, want 1", one.Successions())
	}
}

// Where all others take a leader for ended that lives, an election follows at most: no write that was acknowledged is
// lost, and one member is the leader.
func TestSuccessionOfALiveLeader(t *testing.T) {
	t.Parallel()
	s, m := slowElections(t)
	leader, others := leaderOf(t, m)
	term, ended := leader.LastTerm(), leader.ID()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, n := range others {
		running.Go(func() { n.Succeed(ctx, ended) })
	}
	for i := range 20 {
		key := fmt.Sprint("during", i)
		s.eventually("a write meanwhile", func(ctx context.Context) error {
			_, err := m[i%3].Client().Put(ctx, key, "v")
			return err
		})
	}
	cancel()
	running.Wait()
	s.write(m...)
	for _, n := range m {
		got, err := n.Client().Get(t.Context(), "during", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count != 20 {
			t.Errorf("%s has %v of 20 writes: %v", n.cfg.Name, got, err)
		}
		if after := n.LastTerm(); after > term+1 || n.Leader() != m[0].Leader() {
			t.Errorf("%s: term %d after %d, leader %x, that of another is %x", n.cfg.Name, after, term, n.Leader(),
				m[0].Leader())
		}
	}
}

// slowElections starts three members that elect a leader by themselves only after longer than a test lasts. Where one
// ends its leadership meanwhile, as it receives nothing from the others for a second, those vote for none before that.
func slowElections(t *testing.T) (*site, []*node) {
	t.Helper()
	s, m := three(t)
	slow := func(n *node) {
		n.Close()
		n.cfg.Heartbeat, n.cfg.Election = 2*time.Second, 50*time.Second
		s.run(n)
		t.Cleanup(n.Kill) // the last of them would wait for another leader
		s.write(n)
	}
	slow(m[1])
	s.lead(m[1], m)
	slow(m[2])
	slow(m[0])
	s.write(m...)
	return s, m
}

// lead makes one of the members the leader.
func (s *site) lead(next *node, members []*node) {
	s.Helper()
	s.eventually(next.cfg.Name+" leads", func(ctx context.Context) error {
		for _, n := range members {
			if n.IsLeader() && n != next {
				_, err := n.Client().MoveLeader(ctx, next.ID())
				return err
			}
		}
		if !next.IsLeader() {
			return errors.New("there is no leader")
		}
		return nil
	})
}

// write waits until each of the members has had a write acknowledged, which it has applied then.
func (s *site) write(members ...*node) {
	s.Helper()
	for _, n := range members {
		s.eventually("write by "+n.cfg.Name, func(ctx context.Context) error {
			_, err := n.Client().Put(ctx, "k", n.cfg.Name)
			return err
		})
	}
}

// leaderOf returns the leader of members, and the others.
func leaderOf(t *testing.T, m []*node) (leader *node, others []*node) {
	t.Helper()
	at := slices.IndexFunc(m, func(n *node) bool { return n.IsLeader() })
	if at < 0 {
		t.Fatal("no member is the leader")
	}
	return m[at], slices.Delete(slices.Clone(m), at, at+1)
}
