package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Server certificates are short-lived and begin in the past, for clients whose clock is behind. The total is less
// than the 825 days that some clients accept.
const (
	serverLife  = 90 * 24 * time.Hour
	serverRenew = serverLife * 2 / 3
	serverPast  = year
)

// maxNames bounds the names of one certificate.
const maxNames = 256

// ServerCert is a head's server certificate. Its key is in memory only. It is reissued before it expires, when the
// names change, and when the clock jumps out of its validity. It is safe for concurrent use.
type ServerCert struct {
	issue func(names []string, now time.Time) (*tls.Certificate, error)
	names func() []string
	now   func() time.Time

	mu     sync.Mutex
	cert   *tls.Certificate // guarded by mu
	issued []string         // guarded by mu; the names in cert
	renew  time.Time        // guarded by mu
}

// ServerCert issues certificates for the DNS names and IP addresses that names returns; it is called on each handshake
// and must be fast. now is the head's clock.
func (c *CA) ServerCert(names func() []string, now func() time.Time) *ServerCert {
	return &ServerCert{issue: c.issueServer, names: names, now: now}
}

// TLS returns the configuration of a head's listener. It sends the CA with the chain, for clients that have only its
// pin, and requests client certificates: see [Root.PeerOf].
func (s *ServerCert) TLS() *tls.Config { return ListenTLS(s.GetCertificate) }

// ListenTLS is the same for any certificate.
func ListenTLS(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: get,
		ClientAuth:     tls.RequestClientCert,
		NextProtos:     []string{"h2", "http/1.1"},
	}
}

// GetCertificate is for [tls.Config].
func (s *ServerCert) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	names := normalNames(s.names())
	now := withinCA(s.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cert != nil && slices.Equal(names, s.issued) && now.Before(s.renew) && !now.Before(s.cert.Leaf.NotBefore) {
		return s.cert, nil
	}
	cert, err := s.issue(names, now)
	if err != nil && s.cert != nil {
		slog.Warn("cannot issue a server certificate; keeping the old one", "names", names, "error", err)
		return s.cert, nil
	}
	if err != nil {
		return nil, err
	}
	s.cert, s.issued, s.renew = cert, names, now.Add(serverRenew)
	return cert, nil
}

func normalNames(names []string) []string {
	names = append([]string{trivet.ServerName}, names...)
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *CA) issueServer(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issue server certificate: %w", err)
	}
	cert, err := signServer(serverTemplate(names, now), c.certs[0], key, c.key)
	if err == nil {
		cert.Certificate = append(cert.Certificate, c.links()...)
	}
	return cert, err
}

// signServer signs the certificate of a server's key by a CA, and returns both with the chain.
func signServer(t, ca *x509.Certificate, key, caKey crypto.Signer) (*tls.Certificate, error) {
	if n := len(t.DNSNames) + len(t.IPAddresses); n > maxNames {
		return nil, fmt.Errorf("issue server certificate: %d names; the maximum is %d", n, maxNames)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("issue server certificate for %q and %v: %w", t.DNSNames, t.IPAddresses, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("issue server certificate for %q and %v: %w", t.DNSNames, t.IPAddresses, err)
	}
	return &tls.Certificate{Certificate: [][]byte{der, ca.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

func serverTemplate(names []string, now time.Time) *x509.Certificate {
	t := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{Organization: []string{"Trivet"}, CommonName: trivet.ServerName},
		NotBefore:             now.Add(-serverPast),
		NotAfter:              now.Add(serverLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	addNames(t, names...)
	return t
}

func addNames(t *x509.Certificate, names ...string) {
	for _, name := range names {
		if addr, err := netip.ParseAddr(name); err == nil {
			t.IPAddresses = append(t.IPAddresses, addr.Unmap().WithZone("").AsSlice())
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
}

// withinCA adjusts the time of a wrong clock so that a certificate issued now is within the CA's validity.
func withinCA(now time.Time) time.Time {
	if earliest := caNotBefore.Add(serverPast); now.Before(earliest) {
		return earliest
	}
	if latest := caNotAfter.Add(-serverLife); now.After(latest) {
		return latest
	}
	return now
}
