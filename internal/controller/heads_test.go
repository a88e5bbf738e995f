package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	headdoor "github.com/trivet-project/trivet/internal/heads"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// learning is a membership with one learner.
type learning struct {
	id       uint64
	notReady error // of the store, which has its own idea
	promoted int
}

func (l *learning) Peers() []cluster.Peer {
	return []cluster.Peer{{ID: l.id, Learner: l.promoted == 0}}
}
func (l *learning) Remove(context.Context, uint64) error {
	return errors.New("nobody is to be removed")
}
func (l *learning) Leads() bool { return true }
func (l *learning) Promote(context.Context, uint64) error {
	if l.notReady == nil {
		l.promoted++
	}
	return l.notReady
}

// left is a membership of which some is taken out.
type left struct {
	learning
	all  []cluster.Peer
	gone []uint64
}

func (l *left) Peers() []cluster.Peer { return l.all }
func (l *left) Remove(_ context.Context, id uint64) error {
	l.gone = append(l.gone, id)
	return nil
}

// Of a head that is out nothing is left in the store: not a member that was added for it, of which its record does not know, nor
// one that its record got too late. What is another head's, or may become that, stays.
func TestWhatAHeadLeaves(t *testing.T) {
	f := newFleet(t)
	const here, elsewhere = "https://10.0.0.7:7480", "https://10.0.0.8:7480"
	orphan := cluster.Peer{ID: 7, URL: here, Learner: true}
	started := orphan
	started.Name = "head1"
	for i, tc := range []struct {
		what   string
		member string // of the head that goes
		state  trivet.HeadState
		peer   cluster.Peer
		other  trivet.HeadStatus // of another head
		gone   bool
	}{
		{"a member was added for it", "", trivet.HeadJoining, orphan, trivet.HeadStatus{}, true},
		{"the same, when it is out already", "", trivet.HeadRemoved, orphan, trivet.HeadStatus{}, true},
		{"its record got its member too late", headdoor.MemberID(7), trivet.HeadRemoved, started, trivet.HeadStatus{}, true},
		{"it was removed in full", headdoor.MemberID(8), trivet.HeadRemoved, cluster.Peer{ID: 9, URL: elsewhere, Learner: true}, trivet.HeadStatus{}, false},
		{"another one joins elsewhere", "", trivet.HeadRemoved, orphan, trivet.HeadStatus{State: trivet.HeadJoining, Peer: elsewhere}, true},
		{"another one that joins at its address may take it", "", trivet.HeadRemoved, orphan,
			trivet.HeadStatus{State: trivet.HeadJoining, Peer: here}, false},
		{"another one that joins at its address waits for it to go", headdoor.MemberID(7), trivet.HeadRemoved, orphan,
			trivet.HeadStatus{State: trivet.HeadJoining, Peer: here}, true},
		{"another one has it", "", trivet.HeadRemoved, orphan,
			trivet.HeadStatus{State: trivet.HeadJoining, Peer: here, Member: headdoor.MemberID(7)}, false},
		{"another one is there that counts", "", trivet.HeadRemoved, started, trivet.HeadStatus{State: trivet.HeadMember, Peer: here}, false},
	} {
		name, other := fmt.Sprint("head", 10*i), fmt.Sprint("head", 10*i+1)
		members := &left{all: []cluster.Peer{tc.peer}}
		h := heads{f, members, func() map[string]headdoor.Sight { return nil }}
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(f.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Remove: true},
				Status: trivet.HeadStatus{State: tc.state, Peer: here, Member: tc.member}}),
				f.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: other}, Status: tc.other}))
		})
		if err != nil {
			t.Fatal(err)
		}
		again, err := h.reconcile(t.Context(), name)
		if err != nil || tc.state == trivet.HeadRemoved && again != steady || slices.Equal(members.gone, []uint64{7}) != tc.gone {
			t.Errorf("%s: gone is %v; again in %s, %v", tc.what, members.gone, again, err)
		}
		if rec, err := f.Heads.Get(name); err != nil || rec.Status.State != trivet.HeadRemoved {
			t.Errorf("%s: %+v, %v", tc.what, rec, err)
		}
		_, err = f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(f.Heads.In(tx).Delete(name), f.Heads.In(tx).Delete(other))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newFleet is a fleet over a real store that knows these heads.
func newFleet(t *testing.T, heads ...*trivet.Head) *fleet.Fleet {
	t.Helper()
	m, err := cluster.Start(t.Context(), cluster.Config{Dir: t.TempDir(), Name: "head0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s := store.New(m.Client(), store.Options{})
	f := fleet.New(state.New(s), "head0", slog.New(slog.DiscardHandler))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	_, err = s.Update(t.Context(), func(tx *store.Tx) (err error) {
		for _, h := range heads {
			err = errors.Join(err, f.Heads.In(tx).Create(h))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A head that joined counts when all has been well with it for a while, and not before; its record says why.
func TestWhoIsPromoted(t *testing.T) {
	f := newFleet(t, &trivet.Head{Meta: trivet.Meta{Name: "head1"},
		Status: trivet.HeadStatus{State: trivet.HeadJoining, Member: headdoor.MemberID(7)}})

	members, seen := &learning{id: 7}, map[string]headdoor.Sight{}
	h := heads{f, members, func() map[string]headdoor.Sight { return seen }}
	now := time.Now()
	for _, tc := range []struct {
		why string
		see func(s *headdoor.Sight)
	}{
		{"it has not answered yet", func(s *headdoor.Sight) { s.Heard = time.Time{} }},
		{"it does not answer", func(s *headdoor.Sight) { s.Err, s.Since = errors.New("connection refused"), time.Time{} }},
		{"does not know who leads", func(s *headdoor.Sight) { s.Leader = "" }},
		{"it catches up", func(s *headdoor.Sight) { s.Lag = headdoor.MaxLag + 1 }},
		{"must be stable for a moment", func(s *headdoor.Sight) { s.Since = now }},
		{"not ready", func(*headdoor.Sight) { members.notReady = trivet.ErrConflict }},
		{"", func(*headdoor.Sight) { members.notReady = nil }},
	} {
		sight := headdoor.Sight{Greeting: headdoor.Greeting{Leader: "1"}, Heard: now, Since: now.Add(-stableFor), Lag: headdoor.MaxLag}
		tc.see(&sight)
		seen["head1"] = sight
		again, err := h.reconcile(t.Context(), "head1")
		if err != nil {
			t.Fatalf("%s: %v", tc.why, err)
		}
		rec, err := f.Heads.Get("head1")
		if err != nil {
			t.Fatal(err)
		}
		st := rec.Status
		if tc.why == "" {
			if members.promoted != 1 || st.State != trivet.HeadMember || st.Reason != "" {
				t.Errorf("all is well, and it is promoted %d times: %+v", members.promoted, st)
			}
			continue
		}
		if tc.why == "not ready" {
			tc.why = trivet.ErrConflict.Error()
		}
		if members.promoted != 0 || st.State != trivet.HeadJoining || !strings.Contains(st.Reason, tc.why) || again != catchUp {
			t.Errorf("%s: promoted %d times, again in %s: %+v", tc.why, members.promoted, again, st)
		}
	}
}

// What a head waited for is no problem of a member: neither where it was noted by a version that left it, nor where the note
// comes late.
func TestAMemberHasNoReason(t *testing.T) {
	f := newFleet(t, &trivet.Head{Meta: trivet.Meta{Name: "head1"},
		Status: trivet.HeadStatus{State: trivet.HeadMember, Member: headdoor.MemberID(7), Reason: "promote member: request timed out"}})
	h := heads{f, &learning{id: 7}, func() map[string]headdoor.Sight { return nil }}
	for _, do := range []func() error{
		func() error { _, err := h.reconcile(t.Context(), "head1"); return err },
		func() error { return h.because(t.Context(), "head1", trivet.ErrUnavailable) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if rec, err := f.Heads.Get("head1"); err != nil || rec.Status.Reason != "" {
			t.Errorf("it is %+v, %v", rec.Status, err)
		}
	}
}

// leaving is a membership that lets go whom it is told to.
type leaving struct {
	Members
	peers []cluster.Peer
}

func (l *leaving) Leads() bool           { return true }
func (l *leaving) Peers() []cluster.Peer { return l.peers }
func (l *leaving) Remove(_ context.Context, id uint64) error {
	l.peers = slices.DeleteFunc(l.peers, func(p cluster.Peer) bool { return p.ID == id })
	return nil
}

// The last full head whose member votes stays in the store, whatever its record says, and the record says why; when another one
// votes, it is let go.
func TestLastFullHeadIsKept(t *testing.T) {
	head := func(name, role string, id uint64, remove bool) *trivet.Head {
		return &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role, Remove: remove},
			Status: trivet.HeadStatus{State: trivet.HeadMember, Member: headdoor.MemberID(id)}}
	}
	f := newFleet(t, head("head0", "", 1, true), head("head1", trivet.RoleWitness, 2, false), head("head2", trivet.RoleVoter, 3, false))
	members := &leaving{peers: []cluster.Peer{{ID: 1}, {ID: 2}, {ID: 3, Learner: true}}}
	h := heads{f, members, nil}
	look := func(members int, state trivet.HeadState, reason string) {
		t.Helper()
		if _, err := h.reconcile(t.Context(), "head0"); err != nil {
			t.Fatal(err)
		}
		rec, err := f.Heads.Get("head0")
		if err != nil || len(h.members.Peers()) != members || rec.Status.State != state || !strings.Contains(rec.Status.Reason, reason) {
			t.Fatalf("members %+v, and %+v, %v; want %d, %s, %q", h.members.Peers(), rec, err, members, state, reason)
		}
	}
	look(3, trivet.HeadMember, "no other full head is a member")
	members.peers[2].Learner = false
	look(2, trivet.HeadRemoved, "")
}
