package auth

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"

	"github.com/trivet-project/trivet"
)

// CertFunc gives a member's certificate as it is now.
type CertFunc func() (*tls.Certificate, error)

// PeerTLS is how a member calls others: it proves itself by what own gives, which is asked at each connection, and wants a
// server of this CA at the address that it dials.
func (r *Root) PeerTLS(own CertFunc) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: r.pool(), NextProtos: []string{"h2", "http/1.1"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() },
	}
}

// SelfSigned is a server's certificate for a member's key that no CA has signed yet, by which others can see that they
// reach the one that asked them: see [DialBackTLS].
func SelfSigned(keyPEM []byte) (*tls.Certificate, error) {
	key, err := parsePeerKey(keyPEM)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: newSerial(), Subject: pkix.Name{CommonName: "a head that joins"}, NotBefore: caNotBefore, NotAfter: caNotAfter}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("member's key: %w: %w", trivet.ErrInvalid, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// DialBackTLS wants the holder of the key that a request is for at the other end, whatever its certificate says.
func DialBackTLS(csrPEM []byte) (*tls.Config, error) {
	csr, err := parsePeerRequest(csrPEM)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // replaced by VerifyConnection
		VerifyConnection: func(cs tls.ConnectionState) error {
			if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || !key.Equal(cs.PeerCertificates[0].PublicKey) {
				return fmt.Errorf("%w: another program answers there", trivet.ErrUnauthenticated)
			}
			return nil
		}}, nil
}
