package server

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/auth/authtest"
	"github.com/trivet-project/trivet/internal/peer"
)

// Raft messages of a member are served until it is removed, though its certificate is valid for longer, and those of a
// witness from its own address only. No response is one that raft takes for a removal.
func TestRemovedMemberIsRefused(t *testing.T) {
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	rt := &router{log: slog.New(slog.DiscardHandler), root: func() *auth.Root { return &keys.CA.Root },
		links: peer.NewLinks(nil, slog.New(slog.DiscardHandler)),
		exits: peer.NewExits(nil, nil, slog.New(slog.DiscardHandler))}
	rt.set(&rt.members, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	from := "10.0.0.1:51234"
	post := func(name string, role auth.PeerRole) int {
		t.Helper()
		cert := authtest.PeerCert(t, keys, auth.Peer{Name: name, Role: role, Host: "10.0.0.1"}, time.Now())
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/raft", nil)
		r.TLS, r.RemoteAddr = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}, from
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		return w.Code
	}
	if got := post("head2", auth.PeerWitness); got != http.StatusNoContent { // a witness has no records
		t.Errorf("without records: %d", got)
	}
	rt.setSender(func(p auth.Peer, _ *http.Request) error {
		if p.Name == "head2" {
			return trivet.ErrUnauthenticated
		}
		return nil
	})
	for name, want := range map[string]int{"head1": http.StatusNoContent, "head2": http.StatusUnauthorized} {
		for _, role := range []auth.PeerRole{auth.PeerHead, auth.PeerWitness} {
			if got := post(name, role); got != want {
				t.Errorf("%s, a %s: %d, want %d", name, role, got, want)
			}
		}
	}
	from = "10.0.0.2:51234"
	if got := post("head1", auth.PeerWitness); got != http.StatusUnauthorized {
		t.Errorf("a witness at another address: %d", got)
	}
	if got := post("head1", auth.PeerHead); got != http.StatusNoContent {
		t.Errorf("a full head at another address: %d", got)
	}
}
