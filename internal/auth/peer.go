package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// PeerRole is the role of a member of the cluster.
type PeerRole string

// The roles. A full head has the cluster's keys; a witness has only its own.
const (
	PeerHead    PeerRole = "head"
	PeerWitness PeerRole = "witness"
)

// Peer is a member that is authenticated by a certificate of the cluster's CA.
type Peer struct {
	Name string
	Role PeerRole
	// Host is the address or name of a witness; empty for a full head. Its certificate is also a server certificate,
	// for that address and never for [trivet.ServerName], so that clients reject it. A full head issues its own server
	// certificate.
	Host string
}

// Peer certificates have the same lifetime as server certificates.
const peerLife, peerRenew = serverLife, serverRenew

// PeerRenewal returns when a member's certificate must be renewed.
func PeerRenewal(cert *x509.Certificate) time.Time { return cert.NotAfter.Add(peerRenew - peerLife) }

// PeerKey returns a new private key for a member, in PEM.
func PeerKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("create member key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("create member key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// PeerRequest returns a certificate request, in PEM, for a member's key.
func PeerRequest(keyPEM []byte) ([]byte, error) {
	key, err := parsePeerKey(keyPEM)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("member key: %w: %w", trivet.ErrInvalid, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), nil
}

func parsePeerKey(keyPEM []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, fmt.Errorf("member key: %w: no PEM", trivet.ErrInvalid)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("member key: %w: %w", trivet.ErrInvalid, err)
	}
	if key, ok := key.(*ecdsa.PrivateKey); ok {
		return key, nil
	}
	return nil, fmt.Errorf("member key: %w: not ECDSA", trivet.ErrInvalid)
}

func parsePeerRequest(csrPEM []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csrPEM)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("certificate request: %w: none in PEM", trivet.ErrInvalid)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w: %w", trivet.ErrInvalid, err)
	}
	if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("certificate request: %w: the key must be ECDSA P-256", trivet.ErrInvalid)
	}
	return csr, nil
}

// SignPeer returns the certificate of a member, in PEM. Only the key of the request is used.
func (c *CA) SignPeer(p Peer, csrPEM []byte, now time.Time) ([]byte, error) {
	if err := trivet.ValidateName(p.Name); err != nil {
		return nil, err
	}
	csr, err := parsePeerRequest(csrPEM)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", p.Name, err)
	}
	return c.signPeer(p, csr.PublicKey, withinCA(now))
}

// ValidateWitnessHost returns an error for names that no witness may have in its certificate: [trivet.ServerName],
// however it is written, and wildcards.
func ValidateWitnessHost(host string) error {
	if strings.Contains(host, "*") || strings.EqualFold(strings.TrimRight(host, "."), trivet.ServerName) {
		return fmt.Errorf("%w: %.300q is not a valid address of a witness: it could be any head", trivet.ErrInvalid,
			host)
	}
	return nil
}

func (c *CA) signPeer(p Peer, key crypto.PublicKey, now time.Time) ([]byte, error) {
	if err := ValidateWitnessHost(p.Host); err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", p.Name, err)
	}
	t := &x509.Certificate{
		SerialNumber: newSerial(),
		Subject: pkix.Name{Organization: []string{"Trivet"}, OrganizationalUnit: []string{string(p.Role)},
			CommonName: p.Name},
		NotBefore:             now.Add(-serverPast),
		NotAfter:              now.Add(peerLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if p.Role == PeerWitness {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		addNames(t, p.Host)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, c.certs[0], key, c.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", p.Name, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// PeerOf returns the member at the other end of a connection to a listener that requests certificates
// ([ServerCert.TLS]). It returns [trivet.ErrUnauthenticated] for all other clients.
func (r *Root) PeerOf(cs *tls.ConnectionState, now time.Time) (Peer, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return Peer{}, fmt.Errorf("%w: no member certificate", trivet.ErrUnauthenticated)
	}
	cert := cs.PeerCertificates[0]
	_, err := cert.Verify(x509.VerifyOptions{Roots: r.pool(), Intermediates: x509.NewCertPool(),
		CurrentTime: withinCA(now),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return Peer{}, fmt.Errorf("%w: not a member of this cluster: %w", trivet.ErrUnauthenticated, err)
	}
	for _, role := range []PeerRole{PeerHead, PeerWitness} {
		if slices.Equal(cert.Subject.OrganizationalUnit, []string{string(role)}) {
			return Peer{Name: cert.Subject.CommonName, Role: role, Host: hostOf(cert)}, nil
		}
	}
	return Peer{}, fmt.Errorf("%w: %s is not a member", trivet.ErrUnauthenticated, cert.Subject)
}

// hostOf returns the address or name in a certificate; empty: there is none.
func hostOf(cert *x509.Certificate) string {
	switch {
	case len(cert.IPAddresses) > 0:
		return cert.IPAddresses[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	}
	return ""
}

// ExpiredPeerOf is PeerOf for a member whose certificate may have expired while it was down. The caller must verify
// that it is still a member.
func (r *Root) ExpiredPeerOf(cs *tls.ConnectionState, now time.Time) (Peer, error) {
	if cs != nil && len(cs.PeerCertificates) > 0 && now.After(cs.PeerCertificates[0].NotAfter) {
		now = cs.PeerCertificates[0].NotAfter
	}
	return r.PeerOf(cs, now)
}

func (r *Root) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range r.certs {
		pool.AddCert(cert)
	}
	return pool
}
