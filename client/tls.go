package client

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
)

// TLSConfig returns a configuration that trusts the CAs of one cluster and no others: one, or two while the CA is
// replaced. trust is either their pins, separated by commas, each "sha256:" and the SHA-256 of a certificate, or the
// certificates in PEM.
//
// With PEM, everything is verified as usual: the server's name is the address that was dialled, and the certificate
// must be valid now. That also works with a balancer that terminates TLS under a CA of its own.
//
// With a pin, the server's chain must include the CA's certificate, and its own certificate must verify under that as
// a server's for [trivet.ServerName]; the dialled address is not compared, since only heads have such a certificate.
// The client's clock is not used either, as a machine's clock may be years off before its first contact. This costs
// no security: a server's private key exists only in the memory of a head that holds the CA's key too, so an attacker
// that stole the key of an expired certificate could issue a new one as well.
//
// In both cases, a witness's certificate is refused, whatever names it has.
func TLSConfig(trust string) (*tls.Config, error) {
	cfg, _, err := newTLS(trust)
	return cfg, err
}

// newTLS is TLSConfig, and returns the pins, which may be changed, if trust is pins.
func newTLS(trust string) (*tls.Config, *pinned, error) {
	if strings.HasPrefix(trust, "sha256:") {
		pins, err := parsePins(trust)
		if err != nil {
			return nil, nil, err
		}
		p := &pinned{trust: trust}
		p.pins.Store(&pins)
		return p.tls(), p, nil
	}
	cas, err := parseCAs(trust)
	if err != nil {
		return nil, nil, fmt.Errorf("trust of the cluster: neither pins (sha256:...) nor a CA: %w", err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		RootCAs: x509.NewCertPool()}
	for _, ca := range cas {
		cfg.RootCAs.AddCert(ca)
	}
	cfg.VerifyConnection = func(cs tls.ConnectionState) error { return noWitness(cs.PeerCertificates[0]) }
	return cfg, nil, nil
}

// pinned is the pins of the cluster's CAs, which change when the CA is replaced.
type pinned struct {
	pins atomic.Pointer[[]string]

	mu       sync.Mutex
	trust    string       // guarded by mu; the pins as text
	onChange func(string) // called with mu held
}

// tls returns a configuration by which new connections are verified by the pins of that time.
func (p *pinned) tls() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		InsecureSkipVerify: true, // VerifyConnection verifies instead, also for resumed sessions
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verifyPinned(cs.PeerCertificates, *p.pins.Load())
		}}
}

// maxPins bounds the pins that are accepted, from a head as well.
const maxPins = 8

func parsePins(trust string) ([]string, error) {
	pins := strings.Split(trust, ",")
	if len(pins) > maxPins {
		return nil, fmt.Errorf("trust of the cluster: %w: %d pins; at most %d", trivet.ErrInvalid, len(pins), maxPins)
	}
	for _, pin := range pins {
		if err := ValidatePin(pin); err != nil {
			return nil, err
		}
	}
	return pins, nil
}

// ValidatePin returns an error if pin is not "sha256:" and 64 lower-case hex digits.
func ValidatePin(pin string) error {
	digits, ok := strings.CutPrefix(pin, "sha256:")
	sum, err := hex.DecodeString(digits)
	if !ok || err != nil || len(sum) != 32 || digits != strings.ToLower(digits) {
		return fmt.Errorf("pin %.80q of a CA: %w: want sha256: and 64 lower-case hex digits", pin, trivet.ErrInvalid)
	}
	return nil
}

func verifyPinned(chain []*x509.Certificate, pins []string) error {
	for _, ca := range chain {
		if sum := sha256.Sum256(ca.Raw); !slices.Contains(pins, "sha256:"+hex.EncodeToString(sum[:])) {
			continue
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		_, err := chain[0].Verify(x509.VerifyOptions{
			Roots:         roots,
			Intermediates: x509.NewCertPool(),
			DNSName:       trivet.ServerName,
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			CurrentTime:   midLife(chain[0]),
		})
		if err != nil {
			return fmt.Errorf("server's certificate: %w: %w", trivet.ErrUnauthenticated, err)
		}
		return noWitness(chain[0])
	}
	return fmt.Errorf("%w: the server does not belong to the cluster of %s (wrong address; another cluster; a "+
		"balancer that terminates TLS: then use its CA in PEM; or the cluster's CA was replaced: then run trivet "+
		"login with the new pin)", trivet.ErrUnauthenticated, strings.Join(pins, ","))
}

// noWitness returns an error for the certificate of a witness, which serves raft only.
func noWitness(cert *x509.Certificate) error {
	if slices.Contains(cert.Subject.OrganizationalUnit, trivet.RoleWitness) {
		return fmt.Errorf("server's certificate: %w: it is that of %s, a witness", trivet.ErrUnauthenticated,
			cert.Subject.CommonName)
	}
	return nil
}

// midLife returns a time at which cert is valid, for clients without a clock.
func midLife(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 2)
}

func parseCAs(text string) (cas []*x509.Certificate, err error) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil && len(cas) > 0 {
			return cas, nil
		}
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%w: no certificate in PEM", trivet.ErrInvalid)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: certificate: %w", trivet.ErrInvalid, err)
		}
		if !cert.BasicConstraintsValid || !cert.IsCA {
			return nil, fmt.Errorf("%w: the certificate of %q is not a CA's", trivet.ErrInvalid,
				cert.Subject.CommonName)
		}
		cas = append(cas, cert)
	}
}
