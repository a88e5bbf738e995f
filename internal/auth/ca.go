package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// A CA's validity does not depend on the clock of the head that created it: that clock may be wrong, and clients
// trust the CA by its pin.
var (
	caNotBefore = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	caNotAfter  = time.Date(2099, 12, 31, 23, 59, 59, 0, time.UTC)
)

const caNamePrefix = "Trivet cluster "

// CA is the cluster's certificate authority (ECDSA P-256, which every TLS client accepts). It signs the certificates of
// heads and nothing else.
type CA struct {
	Root
	key crypto.Signer
}

// Root is the certificates of the cluster's CAs, which authenticate its members: one, or two while the CA is replaced,
// of which the first signs. It is public, and all that a witness has of the CAs.
type Root struct {
	certs []*x509.Certificate
	pem   []byte
}

// PEM returns the certificates in PEM. They are public.
func (r *Root) PEM() []byte { return r.pem }

// Trust returns the pins of the certificates, separated by commas: each "sha256:" and the hex SHA-256 of the DER. They
// are public, but must be sent to machines and people over a trusted channel.
func (r *Root) Trust() string {
	var pins []string
	for _, cert := range r.certs {
		pins = append(pins, pinOf(cert))
	}
	return strings.Join(pins, ",")
}

// Matches reports whether one of the certificates has one of the pins, separated by commas.
func (r *Root) Matches(trust string) bool {
	pins := strings.Split(trust, ",")
	return slices.ContainsFunc(r.certs, func(c *x509.Certificate) bool { return slices.Contains(pins, pinOf(c)) })
}

// Cluster returns the ID of the cluster.
func (r *Root) Cluster() string {
	return strings.TrimPrefix(r.certs[0].Subject.CommonName, caNamePrefix)
}

// maxCAs bounds the CAs of a cluster.
const maxCAs = 2

// ParseRoot parses the certificates of a cluster's CAs, in PEM.
func ParseRoot(certPEM []byte) (*Root, error) {
	r := &Root{}
	for rest := certPEM; len(r.certs) == 0 || len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		cert, err := parseCACert(block)
		if err != nil {
			return nil, err
		}
		r.certs = append(r.certs, cert)
		r.pem = append(r.pem, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
		if len(r.certs) > maxCAs || cert.Subject.CommonName != r.certs[0].Subject.CommonName {
			return nil, fmt.Errorf("%w: more than %d CAs, or CAs of several clusters", trivet.ErrInvalid, maxCAs)
		}
	}
	return r, nil
}

func pinOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newCA returns the certificate and key of a new CA, both in PEM.
func newCA(cluster string) (certPEM, keyPEM []byte, err error) {
	if err := trivet.ValidateName(cluster); err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := caTemplate(caNamePrefix + cluster)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{Organization: []string{"Trivet"}, CommonName: name},
		NotBefore:             caNotBefore,
		NotAfter:              caNotAfter,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
}

func parseCA(certPEM, keyPEM []byte) (*CA, error) {
	root, err := ParseRoot(certPEM)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%w: %s contains no private key in PEM", trivet.ErrInvalid, fileCAKey)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", trivet.ErrInvalid, fileCAKey, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(root.certs[0].PublicKey) {
		return nil, fmt.Errorf("%w: %s is not the key of the first CA in %s", trivet.ErrInvalid, fileCAKey, fileCACert)
	}
	return &CA{Root: *root, key: key}, nil
}

// parseCACert parses a certificate, which must be a CA's.
func parseCACert(block *pem.Block) (*x509.Certificate, error) {
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%w: no certificate in PEM", trivet.ErrInvalid)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate: %w", trivet.ErrInvalid, err)
	}
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return nil, fmt.Errorf("%w: the certificate of %q is not a CA certificate", trivet.ErrInvalid,
			cert.Subject.CommonName)
	}
	return cert, nil
}

// newSerial returns 127 random bits: unique without a counter, and positive, as RFC 5280 §4.1.2.2 requires.
func newSerial() *big.Int {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	b[0] |= 0x40
	return new(big.Int).SetBytes(b[:])
}
