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
// heads, and the CA that replaces it, and nothing else.
type CA struct {
	Root
	key    crypto.Signer
	former []*x509.Certificate // see successors.go
}

// Root is the certificates of the cluster's CAs, which authenticate its members: one, or two while the CA is replaced,
// of which the first signs. It is public, and all that a witness has of the CAs.
type Root struct {
	certs []*x509.Certificate
	pem   []byte
}

// PEM returns the certificates in PEM. They are public.
func (r *Root) PEM() []byte { return r.pem }

// Pins returns the pins of the certificates: each "sha256:" and the hex SHA-256 of the DER. The first signs.
func (r *Root) Pins() []string {
	var pins []string
	for _, cert := range r.certs {
		pins = append(pins, pinOf(cert))
	}
	return pins
}

// Trust returns the pins for clients: sorted, and separated by commas. They are public, but must be sent to machines
// and people over a trusted channel.
func (r *Root) Trust() string { return strings.Join(slices.Sorted(slices.Values(r.Pins())), ",") }

// Matches reports whether one of the certificates has one of the pins, separated by commas.
func (r *Root) Matches(trust string) bool {
	pins := strings.Split(trust, ",")
	return slices.ContainsFunc(r.certs, func(c *x509.Certificate) bool { return slices.Contains(pins, pinOf(c)) })
}

// SignedByFirst reports whether the first of the CAs has signed a certificate.
func (r *Root) SignedByFirst(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(r.certs[0]) == nil
}

// Cluster returns the ID of the cluster.
func (r *Root) Cluster() string {
	return strings.TrimPrefix(r.certs[0].Subject.CommonName, caNamePrefix)
}

// maxCAs bounds the CAs of a cluster that are valid at once. A directory may have one more key, while one is replaced
// that was never used.
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
		r.pem = append(r.pem, encodeCert(cert.Raw)...)
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
	return encodeCert(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
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

// parseCA parses the CAs, the keys of one or more of them, of which the first must be one, and their predecessors.
func parseCA(certPEM, keyPEM, formerPEM []byte) (*CA, error) {
	root, err := ParseRoot(certPEM)
	if err != nil {
		return nil, err
	}
	former, err := parseFormer(formerPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fileFormerCAs, err)
	}
	keys, err := parseCAKeys(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fileCAKey, err)
	}
	for _, key := range keys {
		if key.PublicKey.Equal(root.certs[0].PublicKey) {
			return &CA{Root: *root, key: key, former: former}, nil
		}
	}
	return nil, fmt.Errorf("%w: %s has not the key of the first CA in %s", trivet.ErrInvalid, fileCAKey, fileCACert)
}

// parseCAKeys parses the keys of CAs.
func parseCAKeys(text []byte) (keys []*ecdsa.PrivateKey, err error) {
	for len(keys) == 0 || len(bytes.TrimSpace(text)) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil || block.Type != "PRIVATE KEY" {
			return nil, fmt.Errorf("%w: no private key in PEM", trivet.ErrInvalid)
		}
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		}
		key, ok := parsed.(*ecdsa.PrivateKey)
		if !ok || len(keys) == maxCAs+1 {
			return nil, fmt.Errorf("%w: a key that is not ECDSA, or more than %d", trivet.ErrInvalid, maxCAs+1)
		}
		keys = append(keys, key)
	}
	return keys, nil
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
