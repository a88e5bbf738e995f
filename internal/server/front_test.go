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

	"github.com/trivet-project/trivet/internal/auth"
)

// A member speaks raft until it is removed, though its certificate is good for longer. No answer is one that raft takes for
// "you were removed".
func TestARemovedMemberSpeaksNoRaft(t *testing.T) {
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{log: slog.New(slog.DiscardHandler)}
	f.root.Store(&keys.CA.Root)
	f.set(&f.peers, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ask := func(name string, role auth.PeerRole) int {
		t.Helper()
		s := &Server{}
		key, csr, err := newPeerKey()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := keys.CA.SignPeer(auth.Peer{Name: name, Role: role, Host: "10.0.0.1"}, csr, time.Now())
		if err == nil {
			err = s.usePeer(append(cert, key...))
		}
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/raft", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{s.peer.Load().Leaf}}
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		return w.Code
	}
	if got := ask("head2", auth.PeerWitness); got != http.StatusNoContent { // a witness has no records
		t.Errorf("where nothing is known of it: %d", got)
	}
	out := func(name string) bool { return name == "head2" }
	f.out.Store(&out)
	for name, want := range map[string]int{"head1": http.StatusNoContent, "head2": http.StatusUnauthorized} {
		for _, role := range []auth.PeerRole{auth.PeerHead, auth.PeerWitness} {
			if got := ask(name, role); got != want {
				t.Errorf("%s, a %s: %d, want %d", name, role, got, want)
			}
		}
	}
}
