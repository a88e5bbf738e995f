package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/store"
)

// declared returns the context that the heads controller gets: its transactions fail where they read or write a record
// other than a head.
func declared(t *testing.T) context.Context {
	return store.WithScope(t.Context(), store.NewScope("heads", nil, []trivet.Kind{"Head", "Token"}))
}

// learnerMembers is a membership with one learner.
type learnerMembers struct {
	id       uint64
	notReady error // of the store, which has its own rule
	promoted int
}

func (m *learnerMembers) Peers() []cluster.Peer {
	return []cluster.Peer{{ID: m.id, Learner: m.promoted == 0}}
}
func (m *learnerMembers) Remove(context.Context, uint64) error {
	return errors.New("no member is to be removed")
}
func (m *learnerMembers) IsLeader() bool { return true }
func (m *learnerMembers) Promote(context.Context, uint64) error {
	if m.notReady == nil {
		m.promoted++
	}
	return m.notReady
}

// orphanMembers is a membership that records removals.
type orphanMembers struct {
	learnerMembers
	all     []cluster.Peer
	removed []uint64
}

func (m *orphanMembers) Peers() []cluster.Peer { return m.all }
func (m *orphanMembers) Remove(_ context.Context, id uint64) error {
	m.removed = append(m.removed, id)
	return nil
}

// All members of a removed head are removed from the store: also one that was added for it and is not in its record,
// and one that was recorded too late. The member of another head, or one that may become that, stays.
func TestOrphansAreRemoved(t *testing.T) {
	r := newRecords(t)
	const here, elsewhere = "https://10.0.0.7:7480", "https://10.0.0.8:7480"
	orphan := cluster.Peer{ID: 7, URL: here, Learner: true}
	started := orphan
	started.Name = "head1"
	for i, tc := range []struct {
		name   string
		member string // of the removed head
		state  trivet.HeadState
		peer   cluster.Peer
		other  trivet.HeadStatus // of another head
		want   bool              // it is removed
	}{
		{"a member was added for it", "", trivet.HeadJoining, orphan, trivet.HeadStatus{}, true},
		{"the same, when it is removed already", "", trivet.HeadRemoved, orphan, trivet.HeadStatus{}, true},
		{"its member was recorded too late", cluster.FormatID(7), trivet.HeadRemoved, started, trivet.HeadStatus{},
			true},
		{"its member was removed", cluster.FormatID(8), trivet.HeadRemoved,
			cluster.Peer{ID: 9, URL: elsewhere, Learner: true}, trivet.HeadStatus{}, false},
		{"another one joins elsewhere", "", trivet.HeadRemoved, orphan,
			trivet.HeadStatus{State: trivet.HeadJoining, Peer: elsewhere}, true},
		{"another one that joins at its address may use it", "", trivet.HeadRemoved, orphan,
			trivet.HeadStatus{State: trivet.HeadJoining, Peer: here}, false},
		{"another one that joins at its address waits for it to go", cluster.FormatID(7), trivet.HeadRemoved, orphan,
			trivet.HeadStatus{State: trivet.HeadJoining, Peer: here}, true},
		{"another one has it", "", trivet.HeadRemoved, orphan,
			trivet.HeadStatus{State: trivet.HeadJoining, Peer: here, Member: cluster.FormatID(7)}, false},
		{"another one is a member", "", trivet.HeadRemoved, started,
			trivet.HeadStatus{State: trivet.HeadMember, Peer: here}, false},
	} {
		name, other := fmt.Sprint("head", 10*i), fmt.Sprint("head", 10*i+1)
		members := &orphanMembers{all: []cluster.Peer{tc.peer}}
		c := Reconciler{r, members, func() map[string]peer.Status { return nil }}
		_, err := r.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(r.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: name},
				Spec:   trivet.HeadSpec{Remove: true},
				Status: trivet.HeadStatus{State: tc.state, Peer: here, Member: tc.member}}),
				r.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: other}, Status: tc.other}))
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Reconcile(declared(t), name)
		if err != nil || tc.state == trivet.HeadRemoved && again != steadyInterval ||
			slices.Equal(members.removed, []uint64{7}) != tc.want {
			t.Errorf("%s: removed %v; again in %s, %v", tc.name, members.removed, again, err)
		}
		if rec, err := r.Heads.Get(name); err != nil || rec.Status.State != trivet.HeadRemoved {
			t.Errorf("%s: %+v, %v", tc.name, rec, err)
		}
		_, err = r.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(r.Heads.In(tx).Delete(name), r.Heads.In(tx).Delete(other))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A head that joined is promoted when it has been healthy for a while, and not before; its record has the reason.
func TestPromote(t *testing.T) {
	r := newRecords(t, &trivet.Head{Meta: trivet.Meta{Name: "head1"},
		Status: trivet.HeadStatus{State: trivet.HeadJoining, Member: cluster.FormatID(7)}})

	members, statuses := &learnerMembers{id: 7}, map[string]peer.Status{}
	c := Reconciler{r, members, func() map[string]peer.Status { return statuses }}
	now := time.Now()
	for _, tc := range []struct {
		reason string
		change func(s *peer.Status)
	}{
		{"it has not responded yet", func(s *peer.Status) { s.LastHeard = time.Time{} }},
		{"it does not respond", func(s *peer.Status) {
			s.Err, s.HealthySince = errors.New("connection refused"), time.Time{}
		}},
		{"does not know the leader", func(s *peer.Status) { s.Leader = "" }},
		{"it is catching up", func(s *peer.Status) { s.Lag = peer.MaxLag + 1 }},
		{"must be healthy for 3s", func(s *peer.Status) { s.HealthySince = now }},
		{"not ready", func(*peer.Status) { members.notReady = trivet.ErrConflict }},
		{"", func(*peer.Status) { members.notReady = nil }},
	} {
		status := peer.Status{Info: peer.Info{Leader: "1"}, LastHeard: now, HealthySince: now.Add(-StableTime),
			Lag: peer.MaxLag}
		tc.change(&status)
		statuses["head1"] = status
		again, err := c.Reconcile(declared(t), "head1")
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		rec, err := r.Heads.Get("head1")
		if err != nil {
			t.Fatal(err)
		}
		st := rec.Status
		if tc.reason == "" {
			if members.promoted != 1 || st.State != trivet.HeadMember || st.Reason != "" {
				t.Errorf("a healthy head is promoted %d times: %+v", members.promoted, st)
			}
			continue
		}
		if tc.reason == "not ready" {
			tc.reason = trivet.ErrConflict.Error()
		}
		if members.promoted != 0 || st.State != trivet.HeadJoining || !strings.Contains(st.Reason, tc.reason) ||
			again != pendingInterval {
			t.Errorf("%s: promoted %d times, again in %s: %+v", tc.reason, members.promoted, again, st)
		}
	}
}

// A member has no reason, also where another head wrote one late.
func TestMemberHasNoReason(t *testing.T) {
	r := newRecords(t, &trivet.Head{Meta: trivet.Meta{Name: "head1"},
		Status: trivet.HeadStatus{State: trivet.HeadMember, Member: cluster.FormatID(7),
			Reason: "promote member: request timed out"}})
	c := Reconciler{r, &learnerMembers{id: 7}, func() map[string]peer.Status { return nil }}
	for _, do := range []func() error{
		func() error { _, err := c.Reconcile(declared(t), "head1"); return err },
		func() error { return c.setReason(declared(t), "head1", trivet.ErrUnavailable) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if rec, err := r.Heads.Get("head1"); err != nil || rec.Status.Reason != "" {
			t.Errorf("status %+v, %v", rec.Status, err)
		}
	}
}

// removableMembers is a membership that removes members.
type removableMembers struct {
	StoreMembers
	peers []cluster.Peer
}

func (m *removableMembers) IsLeader() bool        { return true }
func (m *removableMembers) Peers() []cluster.Peer { return m.peers }
func (m *removableMembers) Remove(_ context.Context, id uint64) error {
	m.peers = slices.DeleteFunc(m.peers, func(p cluster.Peer) bool { return p.ID == id })
	return nil
}

// The last full voter stays in the store, whatever its record says, and the record has the reason; when there is
// another voter, it is removed.
func TestLastFullHeadIsKept(t *testing.T) {
	head := func(name, role string, id uint64, remove bool) *trivet.Head {
		return &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role, Remove: remove},
			Status: trivet.HeadStatus{State: trivet.HeadMember, Member: cluster.FormatID(id)}}
	}
	r := newRecords(t, head("head0", "", 1, true), head("head1", trivet.RoleWitness, 2, false),
		head("head2", trivet.RoleVoter, 3, false))
	members := &removableMembers{peers: []cluster.Peer{{ID: 1}, {ID: 2}, {ID: 3, Learner: true}}}
	c := Reconciler{r, members, nil}
	check := func(members int, state trivet.HeadState, reason string) {
		t.Helper()
		if _, err := c.Reconcile(declared(t), "head0"); err != nil {
			t.Fatal(err)
		}
		rec, err := r.Heads.Get("head0")
		if err != nil || len(c.Members.Peers()) != members || rec.Status.State != state ||
			!strings.Contains(rec.Status.Reason, reason) {
			t.Fatalf("members %+v, and %+v, %v; want %d, %s, %q", c.Members.Peers(), rec, err, members, state, reason)
		}
	}
	check(3, trivet.HeadMember, "no other full head that votes stays")
	members.peers[2].Learner = false
	check(2, trivet.HeadRemoved, "")
}
