package keys

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
)

// formers is the former boot CAs of a head in memory.
type formers []string

func (f *formers) Former() []string { return *f }

func (f *formers) KeepFormer(pins []string) error {
	*f = slices.DeleteFunc(*f, func(pin string) bool { return !slices.Contains(pins, pin) })
	return nil
}

// newBootSite returns heads whose boot CA is rotated.
func newBootSite(t *testing.T, heads int) *site {
	t.Helper()
	s := newSite(t, heads)
	s.name = trivet.BootCAKey
	for _, n := range s.nodes { // the store goes on with the ring that it has
		n.ring = newRing(keyring.Of(s.first))
	}
	for _, n := range s.nodes {
		for _, other := range s.nodes {
			n.ring.from = append(n.ring.from, other.ring)
		}
		cfg := n.Config
		n.former = &formers{"of before"}
		cfg.Name, cfg.Ring, cfg.Contents, cfg.Former = trivet.BootCAKey, n.ring, nil, n.former
		n.Controller = New(cfg)
		n.now = func() time.Time { return time.Now().Add(n.shift) }
		s.update(func(tx *store.Tx) error {
			h, err := n.tables.Heads.In(tx).Get(n.Head)
			h.Status.BootCAs = n.ring.IDs()
			if err != nil {
				return err
			}
			return n.tables.Heads.In(tx).Put(h)
		}, n)
	}
	return s
}

// The boot CA signs when all full heads have it and the grace is over, and the old one is dropped then. A head that was
// down delays that until it has the new one; a head that was removed does not. The certificates of former ones stay as
// long as the record has them.
func TestRotateBootCA(t *testing.T) {
	t.Parallel()
	s := newBootSite(t, 3)
	old, a, b, c := s.first.ID().String(), s.nodes[0], s.nodes[1], s.nodes[2]
	s.request()
	s.update(func(tx *store.Tx) error {
		k, err := a.tables.Keys.In(tx).Get(trivet.BootCAKey)
		k.Spec.Grace = trivet.Duration(time.Hour)
		if err != nil {
			return err
		}
		return a.tables.Keys.In(tx).Put(k)
	}, a)
	k := s.until("waits for head2", func(k *trivet.Key) bool { return strings.Contains(k.Status.Reason, "head2") }, a, b)
	if k.Status.Phase != trivet.KeyDistributing || k.Status.Active != old || a.ring.IDs()[0] != old {
		t.Errorf("the record is %+v", k.Status)
	}
	next := k.Status.Next
	a.rank, b.rank = 1, 0 // the head that began it is lost
	s.until("all have it", inPhase(trivet.KeyFollowing), b, c)
	s.rounds(5, s.nodes...)
	if k = s.key(); k.Status.Phase != trivet.KeyFollowing || b.ring.IDs()[0] != old || k.Status.Until.IsZero() {
		t.Errorf("in the grace: %+v with %v", k.Status, b.ring.IDs())
	}
	b.shift = time.Hour
	s.until("it signs", inPhase(trivet.KeyDropping), b, c)
	s.update(func(tx *store.Tx) error { // the one that waits is removed
		h, err := a.tables.Heads.In(tx).Get(a.Head)
		h.Status.State = trivet.HeadRemoved
		if err != nil {
			return err
		}
		return a.tables.Heads.In(tx).Put(h)
	}, b)
	k = s.until("is complete", rotated, b, c)
	for _, n := range []*node{b, c} {
		if !slices.Equal(n.ring.IDs(), []string{next}) || k.Status.Active != next || len(*n.former) != 0 {
			t.Errorf("%s has %v, former %v; the record is %+v", n.Head, n.ring.IDs(), *n.former, k.Status)
		}
	}
	if !slices.Equal(k.Status.Former, []string{old}) {
		t.Errorf("former boot CAs %v, want %s", k.Status.Former, old)
	}
	*c.former = formers{old}
	s.rounds(2, b, c)
	if !slices.Equal(*c.former, []string{old}) {
		t.Error("what the record has was dropped")
	}
	s.update(func(tx *store.Tx) error {
		k, err := b.tables.Keys.In(tx).Get(trivet.BootCAKey)
		k.Status.Former = nil
		if err != nil {
			return err
		}
		return b.tables.Keys.In(tx).Put(k)
	}, b)
	s.rounds(2, b, c)
	if len(*c.former) != 0 {
		t.Errorf("after former ones were dropped: %v", *c.former)
	}
	events, err := b.tables.Events.Under(t.Context(), trivet.EventPrefix("key/"+trivet.BootCAKey, ""), "", 0)
	if err != nil || len(events) != 3 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// Where the only head that has the new boot CA is removed, in the grace too, another one is created.
func TestNewBootCAIsLost(t *testing.T) {
	t.Parallel()
	has := func(names ...string) (heads []*trivet.Head) {
		for _, ids := range names {
			heads = append(heads, &trivet.Head{Status: trivet.HeadStatus{BootCAs: strings.Fields(ids)}})
		}
		return heads
	}
	for _, c := range []struct {
		phase trivet.KeyPhase
		heads []*trivet.Head
		want  step
	}{
		{trivet.KeyDistributing, has("old", "old"), create},
		{trivet.KeyDistributing, has("old new", "old"), waiting},
		{trivet.KeyDistributing, has("old new", "old new"), follow},
		{trivet.KeyFollowing, has("old", "old"), create},
		{trivet.KeyFollowing, has("old new", "old"), waiting},
		{trivet.KeyFollowing, has("old new", "old new"), activate},
		{trivet.KeyDropping, has("new", "new old"), waiting},
		{trivet.KeyDropping, has("new", "new"), finish},
	} {
		k := &trivet.Key{Spec: trivet.KeySpec{Rotations: 1}, Status: trivet.KeyStatus{Active: "old", Next: "new",
			Phase: c.phase}}
		k.Name = trivet.BootCAKey
		if c.phase == trivet.KeyDropping {
			k.Status.Active, k.Status.Next, k.Status.Old = "new", "", "old"
		}
		if got, reason := decideBootCA(k, c.heads); got != c.want {
			t.Errorf("%s with %v: step %d (%s), want %d", c.phase, c.heads, got, reason, c.want)
		}
	}
}
