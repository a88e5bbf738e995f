package auth

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// ClientTLS trusts one CA and no other. trust is either its pin ([CA.Pin]) or its certificate in PEM.
//
// With PEM, everything is checked as usual: the server's name is the address that was dialled, and now must lie within the
// certificate's life. That also works with a balancer that ends TLS under a CA of its own.
//
// With a pin, the server's chain must hold the CA's certificate, its own must verify under that as a server's, and must
// be for [HeadName]; the dialled address is not looked at, since only heads get such a certificate. The client's clock
// is not looked at either, as a machine's clock may be years off before its first contact. That gives nothing away: a
// server's private key exists only in the memory of a full head, which holds the CA's key too, so whoever could steal
// an expired certificate's key could as well issue a fresh one.
//
// Either way, a witness's certificate is not a head's, whatever names are in it.
func ClientTLS(trust string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if strings.HasPrefix(trust, "sha256:") {
		if err := ValidatePin(trust); err != nil {
			return nil, err
		}
		cfg.InsecureSkipVerify = true // replaced by VerifyConnection, which is called for resumed sessions too
		cfg.VerifyConnection = func(cs tls.ConnectionState) error { return verifyPinned(cs.PeerCertificates, trust) }
		return cfg, nil
	}
	ca, err := parseCACert([]byte(trust))
	if err != nil {
		return nil, fmt.Errorf("trust of the cluster: neither a pin (sha256:...) nor a CA: %w", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	cfg.RootCAs.AddCert(ca)
	cfg.VerifyConnection = func(cs tls.ConnectionState) error { return noWitness(cs.PeerCertificates[0]) }
	return cfg, nil
}

// ValidatePin refuses what is not "sha256:" and 64 lower-case hex digits.
func ValidatePin(pin string) error {
	digits, ok := strings.CutPrefix(pin, "sha256:")
	sum, err := hex.DecodeString(digits)
	if !ok || err != nil || len(sum) != 32 || digits != strings.ToLower(digits) {
		return fmt.Errorf("pin %.80q of a CA: %w: want sha256: and 64 lower-case hex digits", pin, trivet.ErrInvalid)
	}
	return nil
}

func verifyPinned(chain []*x509.Certificate, pin string) error {
	for _, ca := range chain {
		if pinOf(ca) != pin {
			continue
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca)
		_, err := chain[0].Verify(x509.VerifyOptions{
			Roots:         roots,
			Intermediates: x509.NewCertPool(),
			DNSName:       HeadName,
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			CurrentTime:   middle(chain[0]),
		})
		if err != nil {
			return fmt.Errorf("server's certificate: %w: %w", trivet.ErrUnauthenticated, err)
		}
		return noWitness(chain[0])
	}
	return fmt.Errorf("%w: the server does not belong to the cluster of %s (wrong address, another cluster, or a balancer "+
		"that ends TLS: then give its CA in PEM)", trivet.ErrUnauthenticated, pin)
}

// noWitness refuses a witness's certificate, which is a server's too, to other members.
func noWitness(cert *x509.Certificate) error {
	if slices.Contains(cert.Subject.OrganizationalUnit, string(PeerWitness)) {
		return fmt.Errorf("server's certificate: %w: it is that of %s, a witness", trivet.ErrUnauthenticated, cert.Subject.CommonName)
	}
	return nil
}

// middle is a time at which cert is valid: what a client without a clock takes for now.
func middle(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 2)
}
