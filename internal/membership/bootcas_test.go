package membership

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
)

// A head gets the boot CAs of another one at its start and when it lacks one, and uses what the record says.
func TestFetchBootCAs(t *testing.T) {
	s := newSite(t, 1)
	dir := t.TempDir()
	own := must(auth.Install(filepath.Join(dir, "keys"), s.keys.Bundle()))(t)
	old := own.BootCA().Pin()
	pin := must(s.keys.CreateBootCA(t.TempDir()))(t)
	s.record("head1", "", func(rec *trivet.Head) { rec.Status.Peer = "https://127.0.0.1:1" })
	l := &Local{cfg: Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}, keys: own,
		client: s.client(s.certify(auth.Peer{Name: "head1", Role: auth.PeerHead}))}
	l.data.Peers = []cluster.Peer{{ID: 1, Name: "head0", URL: "https://" + s.heads[0].addr}}
	if err := l.updateKeys(t.Context()); err != nil {
		t.Fatal(err)
	}
	cas := l.BootCAs()
	if !slices.Equal(cas.IDs(), []string{old, pin}) {
		t.Fatalf("boot CAs %v", cas.IDs())
	}
	if err := cas.Fetch(t.Context(), "sha256:0"); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("one that no head has: %v", err)
	}
	if err := errors.Join(cas.Use(pin), cas.DropOthers(pin)); err != nil {
		t.Fatal(err)
	}
	loaded := must(auth.Load(filepath.Join(dir, "keys")))(t)
	if !slices.Equal(loaded.BootCAs(), []string{pin}) || !slices.Equal(cas.Former(), []string{old}) {
		t.Errorf("boot CAs %v, former %v", loaded.BootCAs(), cas.Former())
	}
	if err := cas.KeepFormer(nil); err != nil || len(cas.Former()) > 0 {
		t.Errorf("former %v, %v", cas.Former(), err)
	}
}

// The boot CA is not rotated before all heads know how, and former ones are not dropped while it is.
func TestDropFormer(t *testing.T) {
	s := newSite(t, 1)
	set := func(release trivet.Release) {
		t.Helper()
		if err := s.records.Update(t.Context(), "head0", func(h *trivet.Head) bool {
			h.Status.Release = release
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.records.RaiseClusterVersion(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	set("0.3")
	_, err := s.records.RotateKey(t.Context(), trivet.BootCAKey, nil)
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "needs release 0.3.1 on all heads") {
		t.Errorf("with a head of release 0.3: %v", err)
	}
	set(trivet.CurrentRelease)
	drop := func() (*trivet.Key, error) { return s.records.DropFormer(t.Context(), trivet.BootCAKey) }
	if k, err := drop(); err != nil || k.Revision != 0 {
		t.Errorf("before a rotation: %+v, %v", k, err)
	}
	k, err := s.records.RotateKey(t.Context(), trivet.BootCAKey, nil)
	if err != nil || k.Spec.Grace != trivet.MinGrace {
		t.Fatalf("%+v, %v", k, err)
	}
	if _, err := drop(); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("while it is rotated: %v", err)
	}
	if err := s.records.update(t.Context(), func(tx *store.Tx) error {
		k, err := s.records.Keys.In(tx).Get(trivet.BootCAKey)
		k.Status.Rotations, k.Status.Former = 1, []string{"sha256:1"}
		return errors.Join(err, s.records.Keys.In(tx).Put(k))
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one has nothing to write
		if k, err = drop(); err != nil || len(k.Status.Former) > 0 || k.Status.Events != 1 {
			t.Errorf("%+v, %v", k, err)
		}
	}
	if _, err := s.records.DropFormer(t.Context(), trivet.CAKey); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("another key: %v", err)
	}
}
