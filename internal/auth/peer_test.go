package auth_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

func peerRequest(t *testing.T) []byte {
	t.Helper()
	key, err := auth.PeerKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := auth.PeerRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func peerState(t *testing.T, ca *auth.CA, p auth.Peer) *tls.ConnectionState {
	t.Helper()
	csr := peerRequest(t)
	cert, err := ca.SignPeer(p, csr, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
}

// Only a certificate of a member of this cluster is accepted: not another cluster's, not a server's, not an expired
// one, and not a connection without one.
func TestPeerOf(t *testing.T) {
	keys, err := auth.Init(t.TempDir()+"/a", "c1")
	if err != nil {
		t.Fatal(err)
	}
	other, err := auth.Init(t.TempDir()+"/b", "c1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, p := range []auth.Peer{{Name: "head1", Role: auth.PeerHead}, {Name: "w", Role: auth.PeerWitness, Host: "fd00::9"}} {
		state := peerState(t, keys.CA, p)
		if got, err := keys.CA.PeerOf(state, now); err != nil || got != p {
			t.Errorf("%v is %v, %v", p, got, err)
		}
		if got, err := other.CA.PeerOf(state, now); !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("another cluster takes %v, %v", got, err)
		}
		if got, err := keys.CA.PeerOf(state, now.Add(100*24*time.Hour)); !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("after its time: %v, %v", got, err)
		}
	}
	server, err := keys.CA.ServerCert(func() []string { return nil }, time.Now).GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, state := range map[string]*tls.ConnectionState{
		"no TLS": nil, "no certificate": {}, "a server": {PeerCertificates: []*x509.Certificate{server.Leaf}},
		"another role": peerState(t, keys.CA, auth.Peer{Name: "x", Role: "admin"}),
	} {
		if got, err := keys.CA.PeerOf(state, now); !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	_, err = keys.CA.SignPeer(auth.Peer{Name: "x", Role: auth.PeerHead}, []byte("nonsense"), now)
	if !errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
}

// No witness gets a certificate for the name that pinned clients verify, in any spelling.
func TestWitnessCannotHaveServerName(t *testing.T) {
	keys, err := auth.Init(t.TempDir()+"/a", "c1")
	if err != nil {
		t.Fatal(err)
	}
	csr := peerRequest(t)
	for host, good := range map[string]bool{
		"10.0.0.9": true, "fd00::9": true, "witness.example": true, "witness.trivet.internal": true,
		trivet.ServerName: false, "HEAD.Trivet.Internal": false, trivet.ServerName + ".": false,
		trivet.ServerName + "..": false,
		"*.trivet.internal":      false, "*": false,
	} {
		_, err := keys.CA.SignPeer(auth.Peer{Name: "w", Role: auth.PeerWitness, Host: host}, csr, time.Now())
		if good && err != nil || !good && !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", host, err)
		}
	}
}
