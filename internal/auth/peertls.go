package auth

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
)

// CertFunc returns a member's current certificate.
type CertFunc func() (*tls.Certificate, error)

// PeerTLS returns the TLS configuration of a member's calls to others: it presents the certificate of own, which is
// called for each connection, and requires a server certificate of this CA for the dialed address.
func (r *Root) PeerTLS(own CertFunc) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: r.pool(), NextProtos: []string{"h2", "http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() },
	}
}

// IsWitness reports whether the server of a connection by PeerTLS is a witness.
func IsWitness(cs *tls.ConnectionState) bool {
	return len(cs.PeerCertificates) == 0 ||
		slices.Contains(cs.PeerCertificates[0].Subject.OrganizationalUnit, string(PeerWitness))
}

// SelfSigned returns a self-signed server certificate for a member's key. It lets other members verify that they
// reach the head that wants to join: see [DialBackTLS].
func SelfSigned(keyPEM []byte) (*tls.Certificate, error) {
	key, err := parsePeerKey(keyPEM)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: newSerial(), Subject: pkix.Name{CommonName: "joining head"},
		NotBefore: caNotBefore, NotAfter: caNotAfter}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("member key: %w: %w", trivet.ErrInvalid, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// DialBackTLS requires that the server has the private key of a certificate request, whatever its certificate contains.
func DialBackTLS(csrPEM []byte) (*tls.Config, error) {
	csr, err := parsePeerRequest(csrPEM)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // replaced by VerifyConnection
		VerifyConnection: func(cs tls.ConnectionState) error {
			if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || !key.Equal(cs.PeerCertificates[0].PublicKey) {
				return fmt.Errorf("%w: the address is served by another program", trivet.ErrUnauthenticated)
			}
			return nil
		}}, nil
}
