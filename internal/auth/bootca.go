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
	"time"

	"github.com/trivet-project/trivet"
)

// BootCA is the certificate authority of the boot servers, which firmware trusts where it is enrolled. It uses RSA:
// the TLS of UEFI is often built without elliptic curves, such as Debian's OVMF. No client of the API trusts it.
type BootCA struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
}

const bootCANamePrefix = "Trivet boot "

// rsaBits is what all firmware accepts.
const rsaBits = 2048

// newBootCA returns the certificate and key of a new BootCA, in PEM.
func newBootCA(cluster string) ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, fmt.Errorf("create boot CA: %w", err)
	}
	template := caTemplate(bootCANamePrefix + cluster)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create boot CA: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("create boot CA: %w", err)
	}
	return slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})), nil
}

func parseBootCA(text []byte) (*BootCA, error) {
	block, rest := pem.Decode(text)
	cert, err := parseCACert(block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fileBootCA, err)
	}
	block, _ = pem.Decode(rest)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%w: %s contains no private key in PEM", trivet.ErrInvalid, fileBootCA)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", trivet.ErrInvalid, fileBootCA, err)
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%w: %s: the key is not that of the certificate", trivet.ErrInvalid, fileBootCA)
	}
	return &BootCA{cert, key}, nil
}

// PEM returns the certificate, which is public.
func (c *BootCA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})
}

// bootSuites are those of TLS 1.2 that firmware may have. The last two are for firmware without elliptic curves: their
// sessions can be read later by who gets the key of the head, but what is served to firmware is not secret.
var bootSuites = []uint16{
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_RSA_WITH_AES_128_GCM_SHA256,
}

// TLS returns the configuration of a head's boot server, whose certificate is for the addresses that names returns.
func (c *BootCA) TLS(names func() []string) *tls.Config {
	cert := &ServerCert{issue: c.issueServer, names: names, now: time.Now}
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		CipherSuites:   bootSuites,
		GetCertificate: cert.GetCertificate,
		NextProtos:     []string{"http/1.1"},
	}
}

// issueServer issues a certificate whose key is in memory only. Its validity is that of the CA: the clock of a machine
// that boots may be wrong.
func (c *BootCA) issueServer(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, fmt.Errorf("issue boot certificate: %w", err)
	}
	t := serverTemplate(names, now)
	t.NotBefore, t.NotAfter = caNotBefore, caNotAfter
	t.KeyUsage |= x509.KeyUsageKeyEncipherment
	return signServer(t, c.cert, key, c.key)
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
