package presence_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/auth/authtest"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/presence"
)

// allMembers is a membership that every head belongs to.
type allMembers struct{}

func (allMembers) VerifyMember(string) error             { return nil }
func (allMembers) VerifyNotRemoved(string, string) error { return nil }

// Full heads get the heartbeats. A witness does not: it must not read about machines.
func TestExchangeAccess(t *testing.T) {
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	tracker := presence.New(presence.NewClock(func() bool { return true }), trivet.DefaultAgentTimeout.D)
	tracker.Record("m1", 1, nil)
	s := peer.NewServer(peer.Config{Root: &keys.CA.Root, Membership: allMembers{}, Log: slog.New(slog.DiscardHandler)})
	(&presence.Exchange{Tracker: tracker}).Register(s)
	for _, tc := range []struct {
		role   auth.PeerRole
		status int
	}{{auth.PeerHead, http.StatusOK}, {auth.PeerWitness, http.StatusForbidden}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, peer.Prefix+"presence",
			strings.NewReader(`{"start":"","seq":0}`))
		peer := auth.Peer{Name: "head1", Role: tc.role, Host: "192.0.2.1"} // the sender of httptest
		cert := authtest.PeerCert(t, keys, peer, time.Now())
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != tc.status || strings.Contains(w.Body.String(), "m1") != (tc.status == http.StatusOK) {
			t.Errorf("a %s: %d, want %d: %s", tc.role, w.Code, tc.status, w.Body)
		}
	}
}
