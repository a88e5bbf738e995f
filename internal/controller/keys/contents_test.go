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
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

func at(secret *trivet.Secret, field string) auth.FieldRef {
	return auth.FieldRef{Kind: "Secret", Name: secret.FullName(), Field: field}
}

// sealer seals as a head does, with the keys of a ring.
type sealer struct{ ring *ring }

func (s sealer) Reseal(secret *trivet.Secret, field, text, key string) (string, error) {
	now := auth.NewSealer(s.ring.keys)
	value, err := now.Open(at(secret, field), text)
	if err != nil {
		return "", err
	}
	return now.Seal(at(secret, field), value, key)
}

func (s sealer) SealedWith(text string) string { return auth.SealedWith(text) }

// oneHead is a head whose key of a name is rotated.
type oneHead struct {
	*Controller
	tables *state.Tables
	ring   *ring
	shift  time.Duration // of the controller's clock
}

func newOneHead(t *testing.T, name string, contents func(*oneHead) Contents) *oneHead {
	t.Helper()
	n := &oneHead{ring: newRing(keyring.Of(keyring.New()))}
	n.tables = storetest.On(t, storetest.Member(t), store.Options{Head: "head0", Cipher: storetest.Cipher()}, state.New)
	cfg := Config{Name: name, Head: "head0", Ring: n.ring, Tables: n.tables, Rank: func(string) int { return 0 }}
	if contents != nil {
		cfg.Contents = contents(n)
	}
	n.Controller = New(cfg)
	n.now = func() time.Time { return time.Now().Add(n.shift) }
	n.do(t, func(tx *store.Tx) error {
		h := &trivet.Head{Meta: trivet.Meta{Name: "head0"}, Status: trivet.HeadStatus{State: trivet.HeadMember}}
		h.Status.SetKeys(name, n.ring.IDs())
		return errors.Join(n.tables.Heads.In(tx).Create(h), n.tables.Sites.In(tx).Put(&trivet.Site{
			Meta: trivet.Meta{Name: trivet.SiteName}, Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}),
			n.tables.Keys.In(tx).Create(&trivet.Key{Meta: trivet.Meta{Name: name},
				Spec: trivet.KeySpec{Rotations: 1, Grace: trivet.DefaultGrace(name)}}))
	})
	return n
}

func (n *oneHead) do(t *testing.T, do func(tx *store.Tx) error) {
	t.Helper()
	if _, err := n.tables.Store.Update(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

func (n *oneHead) rounds(t *testing.T, count int) *trivet.Key {
	t.Helper()
	for range count {
		if _, err := n.Reconcile(t.Context(), n.Name); err != nil {
			t.Fatal(err)
		}
	}
	k, err := n.tables.Keys.Get(n.Name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func secrets(n *oneHead) Contents {
	return Secrets{Tables: n.tables, Ring: n.ring, Sealer: sealer{n.ring}}
}

// All values of secrets are sealed again with the new key, and only then the old one is dropped.
func TestRotateKeyOfSecrets(t *testing.T) {
	n := newOneHead(t, trivet.SealKey, secrets)
	old := n.ring.IDs()[0]
	const count = 3*resealsPage + 1
	first := auth.NewSealer(n.ring.keys)
	for i := range count {
		secret := &trivet.Secret{Meta: trivet.Meta{Name: fmt.Sprint("s", i), Project: trivet.DefaultProject}}
		text, err := first.Seal(at(secret, "password"), "value", "")
		if err != nil {
			t.Fatal(err)
		}
		secret.Spec.Data = map[string]string{"password": text}
		n.do(t, func(tx *store.Tx) error { return n.tables.Secrets.In(tx).Create(secret) })
	}
	k := n.rounds(t, 2)
	if k.Status.Phase != trivet.KeyResealing || len(n.ring.IDs()) != 2 {
		t.Fatalf("%+v with the keys %v", k.Status, n.ring.IDs())
	}
	if err := n.Contents.Drops(old); !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "secret/s") {
		t.Errorf("a key that secrets need: %v", err)
	}
	k = n.rounds(t, 10)
	if k.Rotating() || k.Status.Resealed != count || !slices.Equal(n.ring.IDs(), []string{k.Status.Active}) {
		t.Errorf("%+v with the keys %v", k.Status, n.ring.IDs())
	}
	now := auth.NewSealer(n.ring.keys)
	for secret := range n.tables.Secrets.AllShared() {
		text := secret.Spec.Data["password"]
		if value, err := now.Open(at(secret, "password"), text); err != nil || value != "value" ||
			auth.SealedWith(text) != k.Status.Active {
			t.Errorf("%s: %v", secret.Name, err)
		}
	}
}

// Tokens of the old boot key are valid for the grace, and not longer.
func TestRotateBootKey(t *testing.T) {
	n := newOneHead(t, trivet.BootKey, nil)
	old := n.ring.IDs()[0]
	k := n.rounds(t, 10)
	if k.Status.Phase != trivet.KeyFollowing || k.Status.Active == old || n.ring.IDs()[0] != k.Status.Active ||
		n.ring.IDs()[1] != old {
		t.Errorf("%+v with the keys %v", k.Status, n.ring.IDs())
	}
	n.shift = trivet.DefaultGrace(trivet.BootKey).D()
	if k = n.rounds(t, 5); k.Rotating() || len(n.ring.IDs()) != 1 {
		t.Errorf("after the grace: %+v with the keys %v", k.Status, n.ring.IDs())
	}
}

// The controllers read and write what they declare.
func TestDeclarationsOfRings(t *testing.T) {
	for name, contents := range map[string]func(*oneHead) Contents{trivet.SealKey: secrets, trivet.BootKey: nil} {
		reconciletest.Exact(t, Declaration(name), func(ctx context.Context, scope *store.Scope, _ int) error {
			n := newOneHead(t, name, contents)
			if contents != nil {
				secret := &trivet.Secret{Meta: trivet.Meta{Name: "s", Project: trivet.DefaultProject}}
				text, err := auth.NewSealer(n.ring.keys).Seal(at(secret, "a"), "value", "")
				if err != nil {
					return err
				}
				secret.Spec.Data = map[string]string{"a": text}
				n.do(t, func(tx *store.Tx) error { return n.tables.Secrets.In(tx).Create(secret) })
			}
			cfg := n.Config
			cfg.Tables = n.tables.Within(scope)
			if contents != nil {
				cfg.Contents = Secrets{Tables: cfg.Tables, Ring: n.ring, Sealer: sealer{n.ring}}
			}
			c := New(cfg)
			for i := range 20 {
				c.now = func() time.Time { return time.Now().Add(time.Duration(i) * time.Hour) }
				if _, err := c.Reconcile(ctx, name); err != nil {
					return err
				}
			}
			if k, err := n.tables.Keys.Get(name); err != nil || k.Rotating() {
				return fmt.Errorf("not rotated: %w", err)
			}
			return nil
		})
	}
}
