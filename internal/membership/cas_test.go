package membership

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// Only a full head that stays gets the keys of the CAs; a witness gets the certificates.
func TestCAsOfAnotherHead(t *testing.T) {
	s := newSite(t, 2)
	s.record("witness", trivet.RoleWitness, func(rec *trivet.Head) { rec.Status.State = trivet.HeadMember })
	s.record("leaving", "", func(rec *trivet.Head) { rec.Spec.Remove = true })
	for _, tc := range []struct {
		peer auth.Peer
		keys bool
		err  error
	}{
		{auth.Peer{Name: "head1", Role: auth.PeerHead}, true, nil},
		{auth.Peer{Name: "witness", Role: auth.PeerWitness, Host: "127.0.0.1"}, false, nil},
		{auth.Peer{Name: "leaving", Role: auth.PeerHead}, false, trivet.ErrForbidden},
		{auth.Peer{Name: "witness", Role: auth.PeerHead}, false, trivet.ErrForbidden},
	} {
		var resp CAsResponse
		err := s.client(s.certify(tc.peer)).Call(t.Context(), "https://"+s.heads[0].addr, casPath, struct{}{}, &resp)
		if !errors.Is(err, tc.err) || (len(resp.Key) > 0) != tc.keys || len(resp.Former) > 0 && !tc.keys {
			t.Errorf("%+v: %v, keys %t", tc.peer, err, len(resp.Key) > 0)
		}
		if tc.err == nil && string(resp.Certs) != string(s.keys.CA.PEM()) {
			t.Errorf("%+v got other certificates", tc.peer)
		}
	}
}

// A witness that was taken over, and serves the endpoints of full heads, gives neither keys of the store nor CAs to
// others: what it sends could be known to it.
func TestWitnessGivesNoKeys(t *testing.T) {
	s := newSite(t, 1)
	s.record("head1", "", func(*trivet.Head) {})
	cert := s.certify(auth.Peer{Name: "witness", Role: auth.PeerWitness, Host: "127.0.0.1"})
	url := "https://" + s.serve("witness", func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil })
	dir := t.TempDir()
	own := must(auth.Install(filepath.Join(dir, "keys"), s.keys.Bundle()))(t)
	l := &Local{cfg: Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}, keys: own,
		client: s.client(s.certify(auth.Peer{Name: "head1", Role: auth.PeerHead}))}
	l.data.Peers = []cluster.Peer{{ID: 1, Name: "witness", URL: url}}
	if err := l.Ring(trivet.StoreKey).Fetch(t.Context()); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("keys of the store: %v", err)
	}
	if err := l.CAs().Fetch(t.Context(), own.CA.Pins()...); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("CAs: %v", err)
	}
}

// A witness uses the CAs of the full heads once all of these do, and starts again for that.
func TestWitnessFollowsTheCAs(t *testing.T) {
	s := newSite(t, 1)
	s.record("witness", trivet.RoleWitness, func(rec *trivet.Head) { rec.Status.State = trivet.HeadMember })
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	l := &Local{cfg: Config{Dir: dir, Log: slog.New(slog.DiscardHandler)},
		client: s.client(s.certify(auth.Peer{Name: "witness", Role: auth.PeerWitness, Host: "127.0.0.1"}))}
	l.root.Store(&s.keys.CA.Root)
	l.data.Peers = []cluster.Peer{{ID: 1, Name: "head0", URL: "https://" + s.heads[0].addr}}
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.MkdirAll(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.followCAs(t.Context()); err != nil {
		t.Errorf("with the same CA: %v", err)
	}
	if _, err := s.keys.CreateCA(keys); err != nil {
		t.Fatal(err)
	}
	if err := l.followCAs(t.Context()); err != nil {
		t.Errorf("while the head does not use the new CA: %v", err)
	}
	s.record("head0", "", func(rec *trivet.Head) { rec.Status.CAs = s.keys.StoredCAs() })
	if err := l.followCAs(t.Context()); !errors.Is(err, ErrRestart) {
		t.Errorf("once it does: %v", err)
	}
	if root, err := readRoot(filepath.Join(dir, "keys")); err != nil || !slices.Equal(root.Pins(), s.keys.StoredCAs()) {
		t.Errorf("the witness will use %v, %v", root, err)
	}
}
