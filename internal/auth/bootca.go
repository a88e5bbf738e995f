package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"sync"
	"time"
)

// BootCA is the certificate authority of the boot servers, which firmware trusts where it is enrolled. It uses RSA:
// the TLS of UEFI is often built without elliptic curves, such as Debian's OVMF. No client of the API trusts it.
//
// It does not change: the keys have another one after each step of a rotation, see bootcas.go.
type BootCA struct {
	cert  *x509.Certificate
	key   *rsa.PrivateKey
	links []*x509.Certificate // by which former CAs signed their successors, up to this one; the last one first
}

const bootCANamePrefix = "Trivet boot "

// rsaBits is what all firmware accepts.
const rsaBits = 2048

// newBootCA returns a new BootCA. It has no limit of the path length, which not all clients count without certificates
// of successors.
func newBootCA(name string) (*BootCA, error) {
	key, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, fmt.Errorf("create boot CA: %w", err)
	}
	template := bootCATemplate(name)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create boot CA: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("create boot CA: %w", err)
	}
	return &BootCA{cert: cert, key: key}, nil
}

func bootCATemplate(name string) *x509.Certificate {
	t := caTemplate(name)
	t.MaxPathLen, t.MaxPathLenZero = -1, false
	return t
}

// successor returns the certificate by which a boot CA signs its successor. Both have the same name: a CA of before
// release 0.3.1 has a path length of 0, in which certificates of a CA of the same name do not count (RFC 5280 section
// 4.2.1.9). The identifiers of the keys say which of them has signed what.
func (c *BootCA) successor(next *BootCA) (*x509.Certificate, error) {
	template := bootCATemplate(c.cert.Subject.CommonName)
	template.AuthorityKeyId = c.cert.SubjectKeyId
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, next.cert.PublicKey, c.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of the next boot CA: %w", err)
	}
	return x509.ParseCertificate(der)
}

// text returns the certificate and the key, in PEM.
func (c *BootCA) text() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fileBootCA, err)
	}
	return slices.Concat(c.PEM(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

// PEM returns the certificate, which is public.
func (c *BootCA) PEM() []byte { return encodeCert(c.cert.Raw) }

// Pin returns the pin of the certificate.
func (c *BootCA) Pin() string { return pinOf(c.cert) }

// bootSuites are those of TLS 1.2 that firmware may have. The last two are for firmware without elliptic curves: their
// sessions can be read later by who gets the key of the head, but what is served to firmware is not secret.
var bootSuites = []uint16{
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
}

// BootTLS returns the configuration of a head's boot server, whose certificate is for the addresses that names returns,
// and by the boot CA that is in use at the handshake.
func (k *Keys) BootTLS(names func() []string) *tls.Config {
	var mu sync.Mutex
	var by *BootCA
	var cert *ServerCert
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		CipherSuites: bootSuites,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			ca := k.BootCA()
			mu.Lock()
			if ca != by {
				by, cert = ca, &ServerCert{issue: ca.issueServer, names: names, now: time.Now}
			}
			current := cert
			mu.Unlock()
			return current.GetCertificate(hello)
		},
		NextProtos: []string{"http/1.1"},
	}
}

// issueServer issues a certificate whose key is in memory only, with those that lead from former CAs to this one. Its
// validity is that of the CA: the clock of a machine that boots may be wrong.
func (c *BootCA) issueServer(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, fmt.Errorf("issue boot certificate: %w", err)
	}
	t := serverTemplate(names, now)
	t.NotBefore, t.NotAfter = caNotBefore, caNotAfter
	t.KeyUsage |= x509.KeyUsageKeyEncipherment
	cert, err := signServer(t, c.cert, key, c.key)
	if err == nil && len(c.links) > 0 {
		// Without the CA itself: OpenSSL would end the chain there, and not find a former CA that it trusts.
		cert.Certificate = cert.Certificate[:1]
		for _, link := range c.links {
			cert.Certificate = append(cert.Certificate, link.Raw)
		}
	}
	return cert, err
}

// The types of a database of UEFI (UEFI 2.10 section 32.4.1), as they are stored: the first three fields of a GUID are
// little-endian.
var (
	typeX509 = []byte{0xa1, 0x59, 0xc0, 0xa5, 0xe4, 0x94, 0xa7, 0x4a, 0x87, 0xb5, 0xab, 0x15, 0x5c, 0x2b, 0xf0, 0x72}
	// owner names Trivet as the one who enrolled a certificate.
	owner = []byte{0x0c, 0x6e, 0x2f, 0x51, 0x7d, 0x3a, 0x9b, 0x4e, 0xa4, 0x18, 0x52, 0x6d, 0x0f, 0xc3, 0x77, 0xe9}
)

// SignatureList returns an EFI_SIGNATURE_LIST with one certificate, which is given in DER.
func SignatureList(der []byte) []byte {
	const header = 28
	var b bytes.Buffer
	b.Write(typeX509)
	size := len(owner) + len(der)
	for _, n := range []int{header + size, 0, size} {
		b.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
	}
	b.Write(owner)
	b.Write(der)
	return b.Bytes()
}
