package membership

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/keyring"
)

// Only a full head that stays gets the keys of the store from another one: no witness, by its certificate or by its
// record, and no head that is being removed.
func TestStoreKeysAreForFullHeads(t *testing.T) {
	s := newSite(t, 2)
	get := func(p auth.Peer) error {
		var resp KeysResponse
		cl, path := s.client(s.certify(p)), keysPath(trivet.StoreKey)
		err := cl.Call(t.Context(), "https://"+s.heads[0].addr, path, struct{}{}, &resp)
		got := bytes.Equal(resp.Ring, s.keys.Ring(trivet.StoreKey).Text())
		if got != (err == nil) || !got && len(resp.Ring) > 0 {
			t.Errorf("%+v got keys: %t, %v", p, got, err)
		}
		return err
	}
	if err := get(auth.Peer{Name: "head1", Role: auth.PeerHead}); err != nil {
		t.Error(err)
	}
	s.record("witness", trivet.RoleWitness, func(rec *trivet.Head) { rec.Status.State = trivet.HeadMember })
	s.record("leaving", "", func(rec *trivet.Head) { rec.Spec.Remove = true })
	s.record("removed", "", func(rec *trivet.Head) { rec.Status.State = trivet.HeadRemoved })
	for _, p := range []auth.Peer{{Name: "witness", Role: auth.PeerWitness, Host: "127.0.0.1"},
		{Name: "witness", Role: auth.PeerHead}, {Name: "head1", Role: auth.PeerWitness, Host: "127.0.0.1"},
		{Name: "leaving", Role: auth.PeerHead}, {Name: "removed", Role: auth.PeerHead}, {Name: "x", Role: auth.PeerHead}} {
		if err := get(p); !errors.Is(err, trivet.ErrForbidden) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// A party that has the CA's key, from a stolen disk, gets no keys as a full head of another address.
func TestKeysForTheAddressOfTheHead(t *testing.T) {
	s := newSite(t, 2)
	s.record("head1", "", func(rec *trivet.Head) { rec.Status.Peer = "https://192.0.2.1:7480" })
	cl := s.client(s.certify(auth.Peer{Name: "head1", Role: auth.PeerHead}))
	for _, name := range trivet.KeyNames() {
		path := keysPath(name)
		var resp map[string]any
		err := cl.Call(t.Context(), "https://"+s.heads[0].addr, path, struct{}{}, &resp)
		if !errors.Is(err, trivet.ErrForbidden) || len(resp) > 0 {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
}

// A head adds the keys that another one has after its own, on its disk and in its cipher, and keeps what it has where
// none responds.
func TestFetchStoreKeys(t *testing.T) {
	s := newSite(t, 1)
	dir := t.TempDir()
	own := must(auth.Install(filepath.Join(dir, "keys"), s.keys.Bundle()))(t)
	next := keyring.New()
	if err := s.keys.ChangeRing(t.TempDir(), trivet.StoreKey, func(r keyring.Ring) (keyring.Ring, error) {
		return r.With(next), nil
	}); err != nil {
		t.Fatal(err)
	}
	s.record("head1", "", func(rec *trivet.Head) { rec.Status.Peer = "https://127.0.0.1:1" })
	l := &Local{cfg: Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}, keys: own,
		client: s.client(s.certify(auth.Peer{Name: "head1", Role: auth.PeerHead}))}
	l.data.Peers = []cluster.Peer{{ID: 1, Name: "gone", URL: "https://127.0.0.1:1"}}
	ring := l.Ring(trivet.StoreKey)
	if err := ring.Fetch(t.Context()); !errors.Is(err, trivet.ErrUnavailable) || len(ring.IDs()) != 1 {
		t.Errorf("from a head that is down: %v, %v", err, ring.IDs())
	}
	l.data.Peers = append(l.data.Peers, cluster.Peer{ID: 2, Name: "head0", URL: "https://" + s.heads[0].addr})
	if err := l.updateKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{own.Ring(trivet.StoreKey).IDs()[0], next.ID().String()}
	loaded := must(auth.Load(filepath.Join(dir, "keys")))(t)
	if !slices.Equal(l.Ring(trivet.StoreKey).IDs(), want) || !slices.Equal(loaded.Ring(trivet.StoreKey).IDs(), want) ||
		!own.Values().Has(next.ID()) {
		t.Errorf("the keys are %v, on the disk %v, want %v", ring.IDs(), loaded.Ring(trivet.StoreKey).IDs(), want)
	}
	err := l.Ring(trivet.StoreKey).Fetch(t.Context(), "00000000")
	if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), "00000000") {
		t.Errorf("a key that no head has: %v", err)
	}
}

// A rotation that is requested while one is in progress is that one.
func TestRotateKeyTwice(t *testing.T) {
	r := newRecords(t)
	if _, err := r.RotateKey(t.Context(), trivet.StoreKey, nil); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("before all heads have the release: %v", err)
	}
	s := newSite(t, 1)
	if err := s.records.Update(t.Context(), "head0", func(h *trivet.Head) bool {
		h.Status.Release = trivet.CurrentRelease
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.records.RaiseClusterVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		k, err := s.records.RotateKey(t.Context(), trivet.StoreKey, nil)
		if err != nil || k.Spec.Rotations != 1 || !k.Rotating() {
			t.Errorf("%+v, %v", k, err)
		}
	}
	if _, err := s.records.RotateKey(t.Context(), "x", nil); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("another key: %v", err)
	}
}
