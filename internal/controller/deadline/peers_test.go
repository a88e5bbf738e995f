package deadline

import (
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/auth/authtest"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/storetest"
)

// allMembers is a membership that every head belongs to.
type allMembers struct{}

func (allMembers) VerifyMember(string) error             { return nil }
func (allMembers) VerifyNotRemoved(string, string) error { return nil }

// Full heads get what a head has counted, over their connection, beside heads that do not answer or do not run. A
// witness gets nothing.
func TestPeersCount(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	h := newHead(f)
	h.reconcile(t, "default/m1-1")
	h.advance(25 * time.Second)
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(running *Controller) string {
		s := peer.NewServer(peer.Config{Root: &keys.CA.Root, Membership: allMembers{},
			Log: slog.New(slog.DiscardHandler)})
		Register(s, func() *Controller { return running })
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		serving := keys.CA.ServerCert(func() []string { return []string{"127.0.0.1"} }, time.Now)
		hs := &http.Server{TLSConfig: auth.ListenTLS(serving.GetCertificate), Handler: s,
			ErrorLog: log.New(io.Discard, "", 0)}
		go hs.ServeTLS(l, "", "") // until the test ends
		t.Cleanup(func() { hs.Close() })
		return "https://" + l.Addr().String()
	}
	urls := map[string]string{"head1": serve(h.Controller), "head2": serve(nil), "head3": "https://127.0.0.1:1"}
	for role, want := range map[auth.PeerRole]int{auth.PeerHead: 1, auth.PeerWitness: 0} {
		cert := authtest.PeerCert(t, keys, auth.Peer{Name: "head9", Role: role}, time.Now())
		client := peer.NewClient(func() (*tls.Certificate, error) { return cert, nil },
			func() *auth.Root { return &keys.CA.Root }, nil)
		defer client.Close()
		peers := &Peers{Client: client, URLs: func() map[string]string { return urls }}
		all := peers.Counted(t.Context())
		if len(all) != want {
			t.Errorf("a %s gets %v", role, all)
		}
		for _, used := range all {
			if used != 25*time.Second {
				t.Errorf("%s of the wait are used", used)
			}
		}
	}
	if w, err := f.Workflows.Get("default/m1-1"); err != nil || w.Status.State != trivet.WorkflowBooting {
		t.Error(w, err)
	}
}
