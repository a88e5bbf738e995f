package keys

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
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// cas is the CAs of a head in memory. from is where it fetches those that it does not have.
type cas struct {
	used, stored []string
	from         []*cas
	created      *int
}

func (c *cas) InUse() []string  { return slices.Clone(c.used) }
func (c *cas) Stored() []string { return slices.Clone(c.stored) }

func (c *cas) Create() (string, error) {
	*c.created++
	pin := fmt.Sprintf("sha256:%064d", *c.created)
	c.stored = append(c.stored[:1:1], pin)
	return pin, nil
}

func (c *cas) Fetch(_ context.Context, pins ...string) error {
	for _, other := range c.from {
		if slices.Equal(slices.Sorted(slices.Values(other.stored)), slices.Sorted(slices.Values(pins))) {
			c.stored = append(c.stored[:1:1], slices.DeleteFunc(other.Stored(), func(p string) bool {
				return p == c.stored[0]
			})...)
			return nil
		}
	}
	return fmt.Errorf("%w: no head has %v", trivet.ErrUnavailable, pins)
}

func (c *cas) Use(pins []string) error {
	for _, pin := range pins {
		if !slices.Contains(c.stored, pin) {
			return trivet.ErrNotFound
		}
	}
	c.stored = slices.Clone(pins)
	return nil
}

// caSite is heads on one member whose CAs are rotated, and a witness.
type caSite struct {
	*testing.T
	tables  *state.Tables
	heads   []*CAController
	cas     []*cas
	down    map[string]bool
	starts  []string // the heads, in the order in which they started again
	created int
	shift   time.Duration // of the controllers' clock
	tick    time.Duration // that a round takes by that clock
}

const firstCA = "sha256:first"

func newCASite(t *testing.T, n int) *caSite {
	t.Helper()
	s := &caSite{T: t, down: map[string]bool{}}
	m := storetest.Member(t)
	s.tables = storetest.On(t, m, store.Options{Head: "head0"}, state.New)
	for i := range n {
		name := fmt.Sprint("head", i)
		own := &cas{used: []string{firstCA}, stored: []string{firstCA}, created: &s.created}
		c := NewCA(CAConfig{Head: name, CAs: own, Tables: s.tables, Rank: func(string) int { return i },
			Healthy: func(h *trivet.Head) bool { return !s.down[h.Name] }, Log: slog.New(slog.DiscardHandler),
			Restart: func() { s.starts, own.used = append(s.starts, name), own.Stored() }})
		c.now = func() time.Time { return time.Now().Add(s.shift) }
		s.heads, s.cas = append(s.heads, c), append(s.cas, own)
		s.put(name, trivet.RoleVoter, []string{firstCA})
	}
	for _, own := range s.cas {
		own.from = s.cas
	}
	s.put("witness", trivet.RoleWitness, []string{firstCA})
	s.update(func(tx *store.Tx) error {
		return s.tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	return s
}

func (s *caSite) update(do func(tx *store.Tx) error) {
	s.Helper()
	if _, err := s.tables.Store.Update(s.Context(), do); err != nil && !errors.Is(err, errUnchanged) {
		s.Fatal(err)
	}
}

// put writes the record of a head.
func (s *caSite) put(name, role string, cas []string) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		return s.tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role},
			Status: trivet.HeadStatus{State: trivet.HeadMember, StoredCAs: cas, CAs: cas}})
	})
}

func (s *caSite) request(grace time.Duration) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		k, err := s.tables.Keys.In(tx).Get(trivet.CAKey)
		if errors.Is(err, trivet.ErrNotFound) {
			k, err = &trivet.Key{Meta: trivet.Meta{Name: trivet.CAKey}}, nil
		}
		k.Spec.Rotations++
		k.Spec.Grace = trivet.Duration(grace)
		return errors.Join(err, s.tables.Keys.In(tx).Put(k))
	})
}

func (s *caSite) key() *trivet.Key {
	s.Helper()
	k, err := s.tables.Keys.Get(trivet.CAKey)
	if err != nil {
		s.Fatal(err)
	}
	return k
}

// round reconciles each head once, and the witness after them, as it follows the heads.
func (s *caSite) round() {
	s.Helper()
	s.shift += s.tick
	for i, c := range s.heads {
		if s.down[c.Head] {
			continue
		}
		if _, err := c.Reconcile(s.Context(), trivet.CAKey); err != nil && !errors.Is(err, trivet.ErrUnavailable) {
			s.Fatalf("head%d: %v", i, err)
		}
	}
	if used := s.cas[0].used; !s.down["witness"] && !slices.ContainsFunc(s.cas, func(c *cas) bool {
		return !slices.Equal(c.used, used)
	}) {
		s.put("witness", trivet.RoleWitness, used)
	}
}

// until runs rounds until the record is as wanted.
func (s *caSite) until(what string, ok func(*trivet.Key) bool) *trivet.Key {
	s.Helper()
	for range 30 {
		if s.round(); ok(s.key()) {
			return s.key()
		}
	}
	s.Fatalf("never: %s; the record is %+v", what, s.key().Status)
	return nil
}

// Upgrades start heads again, too: while one has begun, no rotation begins, and no head starts again for one.
func TestCAWaitsForUpgrade(t *testing.T) {
	s := newCASite(t, 2)
	upgrade := func(phase trivet.UpgradePhase) {
		s.update(func(tx *store.Tx) error {
			return s.tables.Upgrades.In(tx).Put(&trivet.Upgrade{Meta: trivet.Meta{Name: trivet.UpgradeName},
				Spec:   trivet.UpgradeSpec{Run: 1, Version: "v2", Release: "1.0", Programs: []trivet.Program{{Arch: "amd64"}}},
				Status: trivet.UpgradeStatus{Run: 1, Phase: phase}})
		})
	}
	upgrade(trivet.UpgradeSwitching)
	s.request(time.Second)
	for range 5 {
		s.round()
	}
	if k := s.key(); k.Status.Phase != "" || s.created > 0 {
		t.Errorf("it has begun: %+v, %d CAs", k.Status, s.created)
	}
	upgrade(trivet.UpgradeDone)
	s.round()
	upgrade(trivet.UpgradeSwitching) // which does not happen: it would wait
	for range 5 {
		s.round()
	}
	if k := s.key(); k.Status.Phase != trivet.KeyDistributing || len(s.starts) > 0 {
		t.Errorf("%v started again: %+v", s.starts, k.Status)
	}
	upgrade(trivet.UpgradeDone)
	s.tick = time.Second
	s.until("complete", func(k *trivet.Key) bool { return !k.Rotating() })
}

// A rotation goes through its phases, in each of which every head starts again once, in order; it waits for a head
// and a witness that are down, and clients have their time.
func TestRotateCA(t *testing.T) {
	s := newCASite(t, 3)
	s.request(time.Minute)
	s.down["head1"] = true
	s.until("it waits for head1", func(k *trivet.Key) bool { return strings.Contains(k.Status.Reason, "head1") })
	for range 3 {
		s.round()
	}
	if len(s.starts) > 0 {
		t.Errorf("%v started again while head1 is down", s.starts)
	}
	s.down["head1"] = false
	k := s.until("clients follow", func(k *trivet.Key) bool { return k.Status.Phase == trivet.KeyFollowing })
	next := k.Status.Next
	if !slices.Equal(s.starts, []string{"head0", "head1", "head2"}) {
		t.Errorf("the heads started again in the order %v", s.starts)
	}
	for range 5 {
		s.round()
	}
	if got := s.key().Status.Phase; got != trivet.KeyFollowing {
		t.Errorf("within the grace the phase is %q", got)
	}
	s.shift, s.down["witness"] = time.Minute, true
	s.until("it waits for the witness", func(k *trivet.Key) bool {
		return k.Status.Phase == trivet.KeySigning && strings.Contains(k.Status.Reason, "witness")
	})
	s.down["witness"] = false
	k = s.until("complete", func(k *trivet.Key) bool { return !k.Rotating() })
	if k.Status.Active != next || k.Status.Phase != "" || k.Status.Old != "" {
		t.Errorf("the record is %+v", k.Status)
	}
	for i, c := range s.cas {
		if !slices.Equal(c.used, []string{next}) || !slices.Equal(c.stored, c.used) {
			t.Errorf("head%d uses %v and has %v", i, c.used, c.stored)
		}
	}
	if len(s.starts) != 9 || s.created != 1 {
		t.Errorf("%d starts, %d CAs", len(s.starts), s.created)
	}
	s.round()
	if len(s.starts) != 9 {
		t.Error("a head starts again without a rotation")
	}
}

// Where the head that created the CA is removed before any other has it, another CA is created; where all that had the
// CA which signs are gone, as after a recovery from an older backup, the old one stays.
func TestLostCA(t *testing.T) {
	s := newCASite(t, 2)
	s.request(time.Second)
	s.heads[1].rotation.rank = func(string) int { return 0 }
	if _, err := s.heads[0].Reconcile(t.Context(), trivet.CAKey); err != nil {
		t.Fatal(err)
	}
	lost := s.key().Status.Next
	s.update(func(tx *store.Tx) error {
		h, err := s.tables.Heads.In(tx).Get("head0")
		h.Status.State = trivet.HeadRemoved
		return errors.Join(err, s.tables.Heads.In(tx).Put(h))
	})
	s.heads, s.cas = s.heads[1:], s.cas[1:]
	s.cas[0].from = nil
	s.tick = time.Minute
	s.until("another CA", func(k *trivet.Key) bool { return k.Status.Next != "" && k.Status.Next != lost })
	s.until("it signs", func(k *trivet.Key) bool { return k.Status.Phase == trivet.KeySigning })
	s.cas[0].used, s.cas[0].stored = []string{firstCA}, []string{firstCA}
	k := s.until("the old one stays", func(k *trivet.Key) bool { return !k.Rotating() })
	if k.Status.Active != firstCA || k.Status.Phase != "" {
		t.Errorf("the record is %+v", k.Status)
	}
}

// The turns of the heads: one at a time, by name, while all others are well.
func TestMayRestart(t *testing.T) {
	head := func(name, role string, cas ...string) *trivet.Head {
		return &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role},
			Status: trivet.HeadStatus{State: trivet.HeadMember, CAs: cas}}
	}
	wanted := []string{"a", "b"}
	heads := []*trivet.Head{head("head0", "", "a", "b"), head("head1", "", "a"), head("head2", "", "a"),
		head("head3", trivet.RoleWitness, "a")}
	well := func(*trivet.Head) bool { return true }
	for name, want := range map[string]bool{"head1": true, "head2": false} {
		if got := mayRestart(name, wanted, heads, well); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for _, down := range []string{"head0", "head2", "head3"} {
		if mayRestart("head1", wanted, heads, func(h *trivet.Head) bool { return h.Name != down }) {
			t.Errorf("head1 starts again while %s is down", down)
		}
	}
	leaving := head("head4", "", "a")
	leaving.Spec.Remove = true
	if mayRestart("head1", wanted, append(heads, leaving), well) {
		t.Error("head1 starts again while head4 is being removed")
	}
	if !mayRestart("head0", wanted, heads[:1], well) {
		t.Error("a single head never starts again")
	}
}

// A rotation begins where all members use one CA: not where a record was put back to its beginning in the middle of
// one, nor while a member reports none.
func TestBeginCA(t *testing.T) {
	k := &trivet.Key{Meta: trivet.Meta{Name: trivet.CAKey}, Spec: trivet.KeySpec{Rotations: 1}}
	for _, tc := range []struct {
		cas  [][]string
		want step
	}{
		{[][]string{{"a"}, {"a"}}, create}, {[][]string{{"b", "a"}, {"a", "b"}}, waiting},
		{[][]string{{"b"}, {"a"}}, waiting}, {[][]string{{"a"}, nil}, waiting},
	} {
		var heads []*trivet.Head
		for i, cas := range tc.cas {
			heads = append(heads, &trivet.Head{Meta: trivet.Meta{Name: fmt.Sprint("head", i)},
				Status: trivet.HeadStatus{State: trivet.HeadMember, CAs: cas}})
		}
		if got, reason := decideCA(k, heads); got != tc.want || (got == waiting) != (reason != "") {
			t.Errorf("%v: %d, %q", tc.cas, got, reason)
		}
	}
}

// The controller reads and writes what it declares, and nothing else.
func TestCADeclaration(t *testing.T) {
	reconciletest.Exact(t, CADeclaration, func(ctx context.Context, scope *store.Scope, _ int) error {
		s := newCASite(t, 1)
		s.update(func(tx *store.Tx) error { return s.tables.Heads.In(tx).Delete("witness") })
		s.request(time.Second)
		cfg := s.heads[0].CAConfig
		cfg.Tables = s.tables.Within(scope)
		c := NewCA(cfg)
		for i := range 20 {
			c.now = func() time.Time { return time.Now().Add(time.Duration(i) * time.Minute) }
			if _, err := c.Reconcile(ctx, trivet.CAKey); err != nil {
				return err
			}
		}
		if s.key().Rotating() {
			return errors.New("not rotated")
		}
		return nil
	})
}
