package auth

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
)

// firmwareTLS is the TLS of firmware that was built without elliptic curves, and trusts the CA of these keys.
func firmwareTLS(keys *Keys, host string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(keys.BootCA().PEM())
	return &tls.Config{RootCAs: pool, ServerName: host, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}}
}

// Firmware without elliptic curves reaches the boot server of each head of its cluster, by an address of it; and no
// other server.
func TestBootCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	keys, err := Init(dir, "c1")
	if err != nil {
		t.Fatal(err)
	}
	joined, err := Install(filepath.Join(t.TempDir(), "keys"), keys.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	server, other := joined.BootTLS(names("127.0.0.1", "10.0.0.1")), newKeys(t, "c1")
	if err := dial(t, server, firmwareTLS(keys, "10.0.0.1")); err != nil {
		t.Errorf("firmware with the CA: %v", err)
	}
	modern := firmwareTLS(keys, "10.0.0.1")
	modern.MaxVersion, modern.CipherSuites = 0, nil
	if err := dial(t, server, modern); err != nil {
		t.Errorf("TLS 1.3: %v", err)
	}
	for what, c := range map[string]*tls.Config{
		"another cluster's CA": firmwareTLS(other, "10.0.0.1"), "another address": firmwareTLS(keys, "10.0.0.2"),
		"the API's CA": clientTLS(t, keys.CA.Trust()),
	} {
		if err := dial(t, server, c); err == nil {
			t.Errorf("%s: connected", what)
		}
	}
	if err := dial(t, keys.CA.ServerCert(names("10.0.0.1"), fixed(day)).TLS(), modern); err == nil {
		t.Error("firmware connected to the API: its CA signs for boot servers only")
	}
}

// A damaged file of the boot CA is refused with its name.
func TestBootCAIsDamaged(t *testing.T) {
	keys, other := newKeys(t, "c1"), newKeys(t, "c1")
	for what, text := range map[string][]byte{
		"no certificate": []byte("x"), "no key": keys.BootCA().PEM(),
		"another key": slices.Concat(other.BootCA().PEM(), keys.Bundle()[fileBootCA][len(keys.BootCA().PEM()):]),
	} {
		b := keys.Bundle()
		b[fileBootCA] = text
		if _, err := Install(filepath.Join(t.TempDir(), "keys"), b); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A signature list has the form of UEFI: a header, the owner, and the certificate.
func TestSignatureList(t *testing.T) {
	block, _ := pem.Decode(newKeys(t, "c1").BootCA().PEM())
	list := SignatureList(block.Bytes)
	number := func(at int) int { return int(binary.LittleEndian.Uint32(list[at:])) }
	if !slices.Equal(list[:16], typeX509) || number(16) != len(list) || number(20) != 0 || number(24) != len(list)-28 {
		t.Errorf("header % x", list[:28])
	}
	if cert, err := x509.ParseCertificate(list[28+16:]); err != nil || !cert.IsCA {
		t.Errorf("certificate: %v", err)
	}
}
