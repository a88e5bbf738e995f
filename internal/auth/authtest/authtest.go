// Package authtest issues certificates for tests.
package authtest

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/auth"
)

// PeerCert returns a new key and its certificate of a member, issued at a time. Its Leaf is set.
func PeerCert(t testing.TB, keys *auth.Keys, p auth.Peer, at time.Time) *tls.Certificate {
	t.Helper()
	key, err := auth.PeerKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := auth.PeerRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keys.CA.SignPeer(p, csr, at)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return &cert
}
