package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// ring is the keys of a head in memory. from is where it fetches those that it does not have.
type ring struct {
	keys   keyring.Ring
	cipher *keyring.Cipher
	from   []*ring
	down   bool
}

func newRing(r keyring.Ring) *ring { return &ring{keys: r, cipher: keyring.NewCipher(r)} }

func (r *ring) change(to keyring.Ring) error {
	r.keys = to
	r.cipher.Use(to)
	return nil
}

func (r *ring) IDs() []string { return r.keys.IDs() }

func (r *ring) Create() (string, error) {
	k := keyring.New()
	return k.ID().String(), r.change(r.keys.With(k))
}

func (r *ring) Fetch(_ context.Context, ids ...string) error {
	for _, other := range r.from {
		if !other.down {
			_ = r.change(r.keys.With(other.keys.Keys()...))
		}
	}
	for _, id := range ids {
		if !slices.Contains(r.IDs(), id) {
			return fmt.Errorf("%w: no head has %s", trivet.ErrUnavailable, id)
		}
	}
	return nil
}

func (r *ring) Use(first string) error { return r.keep(first, nil) }

func (r *ring) DropOthers(only string) error {
	return r.keep(only, func(keyring.ID) bool { return false })
}

func (r *ring) keep(first string, others func(keyring.ID) bool) error {
	id, err := keyring.ParseID(first)
	if err != nil {
		return err
	}
	return r.change(r.keys.Keep(id, others))
}

// node is a head with its controller.
type node struct {
	*Controller
	tables *state.Tables
	ring   *ring
	rank   int
	former *formers      // of the boot CA
	shift  time.Duration // of the controller's clock, of the boot CA
}

// site is heads on one member.
type site struct {
	*testing.T
	name  string // of the key
	first keyring.Key
	nodes []*node
}

func newSite(t *testing.T, heads int) *site {
	t.Helper()
	s := &site{T: t, name: trivet.StoreKey, first: keyring.New()}
	m := storetest.Member(t)
	for i := range heads {
		n := &node{ring: newRing(keyring.Of(s.first)), rank: i}
		name := fmt.Sprint("head", i)
		n.tables = storetest.On(t, m, store.Options{Head: name, Cipher: n.ring.cipher}, state.New)
		n.Controller = New(Config{Name: trivet.StoreKey, Head: name, Ring: n.ring,
			Contents: StoreValues{n.tables.Store, m}, Tables: n.tables,
			Rank: func(string) int { return n.rank }})
		s.nodes = append(s.nodes, n)
		s.update(func(tx *store.Tx) error {
			return n.tables.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: name},
				Status: trivet.HeadStatus{State: trivet.HeadMember, StoreKeys: n.ring.IDs()}})
		}, n)
	}
	for _, n := range s.nodes {
		for _, other := range s.nodes {
			if other != n {
				n.ring.from = append(n.ring.from, other.ring)
			}
		}
	}
	s.update(func(tx *store.Tx) error {
		return s.nodes[0].tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	}, s.nodes[0])
	return s
}

func (s *site) update(do func(tx *store.Tx) error, n *node) {
	s.Helper()
	if _, err := n.tables.Store.Update(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

// request requests a rotation.
func (s *site) request() {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		keys := s.nodes[0].tables.Keys.In(tx)
		k, err := keys.Get(s.name)
		if errors.Is(err, trivet.ErrNotFound) {
			k, err = &trivet.Key{Meta: trivet.Meta{Name: s.name}}, nil
		}
		k.Spec.Rotations++
		k.Spec.Grace = trivet.DefaultGrace(s.name)
		return errors.Join(err, keys.Put(k))
	}, s.nodes[0])
}

// key returns the record.
func (s *site) key() *trivet.Key {
	s.Helper()
	n := s.nodes[0]
	err := n.tables.Store.Sync(s.Context())
	k, failed := n.tables.Keys.Get(s.name)
	if err := errors.Join(err, failed); err != nil {
		s.Fatal(err)
	}
	return k
}

// until reconciles on some heads until the record is as wanted.
func (s *site) until(what string, ok func(*trivet.Key) bool, on ...*node) *trivet.Key {
	s.Helper()
	var failed error
	for range 200 {
		if k := s.key(); ok(k) {
			return k
		}
		failed = nil
		for _, n := range on {
			err := n.tables.Store.Sync(s.Context())
			_, reconciled := n.Reconcile(s.Context(), s.name)
			failed = errors.Join(failed, err, reconciled)
		}
	}
	s.Fatalf("%s: never; the record is %+v; last: %v", what, s.key().Status, failed)
	return nil
}

// rounds reconciles on some heads.
func (s *site) rounds(count int, on ...*node) {
	s.Helper()
	for range count {
		for _, n := range on {
			err := n.tables.Store.Sync(s.Context())
			_, reconciled := n.Reconcile(s.Context(), s.name)
			if err := errors.Join(err, reconciled); err != nil {
				s.Fatal(err)
			}
		}
	}
}

func inPhase(p trivet.KeyPhase) func(*trivet.Key) bool {
	return func(k *trivet.Key) bool { return k.Status.Phase == p }
}

func rotated(k *trivet.Key) bool { return !k.Rotating() }

// A rotation that one head began is continued by another one, waits for a head that does not respond, and ends when no
// head has the old key. A second one follows.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	old, a, b, c := s.first.ID().String(), s.nodes[0], s.nodes[1], s.nodes[2]
	for i := range 150 {
		s.update(func(tx *store.Tx) error {
			tx.Append("log", []byte(`{}`))
			return a.tables.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: fmt.Sprint("m", i)}})
		}, a)
	}
	s.request()
	k := s.until("waits for head2", func(k *trivet.Key) bool { return strings.Contains(k.Status.Reason, "head2") }, a, b)
	if k.Status.Phase != trivet.KeyDistributing || k.Status.Active != old || k.Status.Reason !=
		"waits for head2 to get the new key from head0, head1; start a head that is down, or remove it" {
		t.Errorf("the record is %+v", k.Status)
	}
	a.rank, b.rank = 1, 0 // the head that began it is lost
	a.ring.down = true
	s.until("uses the new key", inPhase(trivet.KeyResealing), b, c)
	k = s.until("drops the old key", inPhase(trivet.KeyDropping), b, c)
	if k.Status.Old != old || k.Status.Resealed < 300 {
		t.Errorf("the record is %+v", k.Status)
	}
	s.until("waits for head0", func(k *trivet.Key) bool { return strings.Contains(k.Status.Reason, "head0") }, b, c)
	if slices.Contains(b.ring.IDs(), old) || !slices.Contains(a.ring.IDs(), old) {
		t.Errorf("the keys are %v and %v", a.ring.IDs(), b.ring.IDs())
	}
	k = s.until("is complete", rotated, a, b, c)
	for _, n := range s.nodes {
		if !slices.Equal(n.ring.IDs(), []string{k.Status.Active}) {
			t.Errorf("%s has %v, and %s is active", n.Head, n.ring.IDs(), k.Status.Active)
		}
	}
	s.request()
	if next := s.until("is complete again", rotated, s.nodes...); next.Status.Active == k.Status.Active ||
		next.Status.Rotations != 2 {
		t.Errorf("the record is %+v", next.Status)
	}
	events, err := a.tables.Events.Under(t.Context(), trivet.EventPrefix("key/store", ""), "", 0)
	if err != nil || len(events) != 6 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if a.tables.Store.Refused() != 0 || a.tables.Machines.Len() != 150 {
		t.Error("not every record is readable")
	}
}

// Where the only head that has the new key is removed, another one is created. Its attempts that fail create one key
// only.
func TestNewKeyIsLostWithItsHead(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	a, b := s.nodes[0], s.nodes[1]
	s.request()
	lost := s.until("has a new key", inPhase(trivet.KeyDistributing), a).Status.Next
	a.ring.down = true
	b.rank = 0
	s.until("waits", func(k *trivet.Key) bool { return strings.Contains(k.Status.Reason, "head1 to get") }, b)
	s.update(func(tx *store.Tx) error {
		h, err := b.tables.Heads.In(tx).Get("head0")
		h.Status.State = trivet.HeadRemoved
		return errors.Join(err, b.tables.Heads.In(tx).Put(h))
	}, b)
	s.nodes = s.nodes[1:]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		_ = b.create(ctx)
	}
	if ids := b.ring.IDs(); len(ids) != 2 {
		t.Errorf("the keys are %v", ids)
	}
	if k := s.until("is complete", rotated, b); k.Status.Active == lost || len(b.ring.IDs()) != 1 {
		t.Errorf("the record is %+v, the keys are %v", k.Status, b.ring.IDs())
	}
}

// A head whose new key is lost, as its directory was put back from a copy, publishes that. Where it was the only one
// that had the key, another one is created.
func TestLostNewKeyIsReplaced(t *testing.T) {
	t.Parallel()
	for heads := range 2 {
		s := newSite(t, heads+1)
		a := s.nodes[0]
		s.request()
		lost := s.until("has a new key", inPhase(trivet.KeyDistributing), a).Status.Next
		if err := a.ring.change(keyring.Of(s.first)); err != nil {
			t.Fatal(err)
		}
		if k := s.until("is complete", rotated, s.nodes...); k.Status.Active == lost {
			t.Errorf("%d heads: the lost key %s is active", heads+1, lost)
		}
	}
}

// A head whose copy is behind does not drop a key that became the active one meanwhile.
func TestHeadThatIsBehindDropsNoKey(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2)
	a, b := s.nodes[0], s.nodes[1]
	s.request()
	s.until("is complete", rotated, a, b)
	if err := b.tables.Store.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.tables.Store.Close() // its copy stays as it is
	s.request()
	s.until("has a new key", inPhase(trivet.KeyDistributing), a)
	if err := b.ring.Fetch(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.update(func(tx *store.Tx) error {
		h, err := a.tables.Heads.In(tx).Get("head1")
		h.Status.StoreKeys = b.ring.IDs()
		return errors.Join(err, a.tables.Heads.In(tx).Put(h))
	}, a)
	k := s.until("uses the new key", inPhase(trivet.KeyResealing), a)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.Reconcile(ctx, trivet.StoreKey); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the head that is behind: %v", err)
	}
	if !slices.Contains(b.ring.IDs(), k.Status.Active) {
		t.Errorf("it has dropped %s, which is active", k.Status.Active)
	}
}

// A head keeps what values of its copy are encrypted with, whatever the record says.
func TestUsedKeyIsNotDropped(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	n := s.nodes[0]
	id, err := n.ring.Create()
	if err != nil {
		t.Fatal(err)
	}
	s.update(func(tx *store.Tx) error {
		return n.tables.Keys.In(tx).Create(&trivet.Key{Meta: trivet.Meta{Name: trivet.StoreKey},
			Status: trivet.KeyStatus{Active: id, Phase: trivet.KeyDropping}})
	}, n)
	if _, err := n.Reconcile(t.Context(), trivet.StoreKey); !errors.Is(err, trivet.ErrConflict) {
		t.Error(err)
	}
	if ids := n.ring.IDs(); !slices.Equal(ids, []string{id, s.first.ID().String()}) {
		t.Errorf("the keys are %v", ids)
	}
}

// A head leaves a rotation to those that rank before it, for as long as its record changes.
func TestStalledRotationIsTakenOver(t *testing.T) {
	now := time.Now()
	rank := 1
	c := New(Config{Rank: func(string) int { return rank }})
	c.now = func() time.Time { return now }
	k := &trivet.Key{Meta: trivet.Meta{Name: trivet.StoreKey, Revision: 5}}
	for i, step := range []struct {
		pass   time.Duration
		change bool
		want   bool
	}{
		{0, false, false}, {stallTime - 1, false, false},
		{0, true, false}, {stallTime - 1, false, false}, {1, false, true},
	} {
		now = now.Add(step.pass)
		if step.change {
			k.Revision++
		}
		if got := c.drives(k); got != step.want {
			t.Errorf("%d: %t", i, got)
		}
	}
	if rank = 0; !New(c.Config).drives(k) {
		t.Error("the first head waits")
	}
}

// The rates of a pass are bounded.
func TestPause(t *testing.T) {
	for _, c := range []struct {
		page store.ResealPage
		want time.Duration
	}{
		{store.ResealPage{Read: 100}, 5 * time.Millisecond},
		{store.ResealPage{Read: 100, Found: 100, Bytes: 100 << 10}, 100 * time.Millisecond},
		{store.ResealPage{Read: 3, Found: 3, Bytes: 1 << 20}, 500 * time.Millisecond},
	} {
		if got := pause(c.page); got != c.want {
			t.Errorf("%+v: %s", c.page, got)
		}
	}
}

func TestDeclaration(t *testing.T) {
	t.Parallel()
	reconciletest.Exact(t, Declaration(trivet.StoreKey), func(ctx context.Context, scope *store.Scope, _ int) error {
		s := newSite(t, 1)
		n := s.nodes[0]
		s.request()
		cfg := n.Config
		cfg.Tables = n.tables.Within(scope)
		c := New(cfg)
		for range 20 {
			if _, err := c.Reconcile(ctx, c.Keys()[0]); err != nil {
				return err
			}
		}
		if s.key().Rotating() {
			return errors.New("not rotated")
		}
		return nil
	})
}
