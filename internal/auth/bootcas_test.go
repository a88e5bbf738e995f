package auth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
)

// bootHead is a head's keys in their directory.
type bootHead struct {
	*testing.T
	*Keys
	dir string
}

// newBootHead returns the head of a cluster with a boot CA as releases before 0.3.1 created it: with a path length
// of 0.
func newBootHead(t *testing.T) *bootHead {
	t.Helper()
	b := newKeys(t, "c1").Bundle()
	ca, err := newBootCA(bootCANamePrefix + "c1")
	if err != nil {
		t.Fatal(err)
	}
	template := caTemplate(bootCANamePrefix + "c1")
	der, err := x509.CreateCertificate(nil, template, template, ca.cert.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil || !ca.cert.MaxPathLenZero {
		t.Fatal(ca.cert, err)
	}
	if b[fileBootCA], err = ca.text(); err != nil {
		t.Fatal(err)
	}
	return installBootHead(t, b)
}

func installBootHead(t *testing.T, b Bundle) *bootHead {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	keys, err := Install(dir, b)
	if err != nil {
		t.Fatal(err)
	}
	return &bootHead{t, keys, dir}
}

// must fails the test on an error.
func (h *bootHead) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// rotate replaces the boot CA.
func (h *bootHead) rotate() {
	h.Helper()
	pin, err := h.CreateBootCA(h.dir)
	h.must(err)
	h.must(h.UseBootCA(h.dir, pin, false))
	h.must(h.UseBootCA(h.dir, pin, true))
}

// serve runs the TLS of the boot server, and returns its address.
func (h *bootHead) serve() string {
	h.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", h.BootTLS(names("127.0.0.1")))
	h.must(err)
	h.Cleanup(func() { l.Close() })
	go func() { // until the listener is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func(c net.Conn) {
				_ = c.(*tls.Conn).Handshake()
				_ = c.Close()
			}(conn)
		}
	}()
	return l.Addr().String()
}

// verify runs OpenSSL as a client that trusts a CA, with the suites of firmware that has no elliptic curves.
func (h *bootHead) verify(address string, ca []byte) error {
	h.Helper()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		h.Fatal("openssl is missing: apt-get install openssl")
	}
	file := filepath.Join(h.TempDir(), "ca.pem")
	h.must(os.WriteFile(file, ca, 0o600))
	cmd := exec.CommandContext(h.Context(), openssl, "s_client", "-connect", address, "-CAfile", file, "-tls1_2",
		"-cipher", "AES128-GCM-SHA256", "-partial_chain", "-no_check_time", "-verify_ip", "127.0.0.1",
		"-verify_return_error")
	out, err := cmd.CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("certificate verify failed")) {
		h.Fatalf("openssl: %v\n%s", err, out)
	}
	return err
}

// OpenSSL, which is the TLS of EDK II, accepts a head after a rotation where it trusts a former boot CA or the new one,
// also one with a path length of 0, and after a second rotation; until the former ones are dropped. The server is the
// same all the time.
func TestRotateBootCA(t *testing.T) {
	h := newBootHead(t)
	address := h.serve()
	first := h.BootCA().PEM()
	if err := h.verify(address, first); err != nil {
		t.Fatal(err)
	}
	pin, err := h.CreateBootCA(h.dir)
	h.must(err)
	wanted, others, _ := h.ExportBootCAs(pin)
	if err := h.verify(address, wanted); err == nil || !bytes.Equal(others, first) {
		t.Error("a boot CA that was created is in use")
	}
	h.must(h.UseBootCA(h.dir, pin, false))
	h.must(h.UseBootCA(h.dir, pin, true))
	second := h.BootCA().PEM()
	if !bytes.Equal(second, wanted) {
		t.Error("another boot CA is in use than the one that was exported")
	}
	h.rotate()
	third := h.BootCA().PEM()
	for i, ca := range [][]byte{first, second, third, slices.Concat(first, third)} {
		if err := h.verify(address, ca); err != nil {
			t.Errorf("boot CA %d: %v", i+1, err)
		}
	}
	if former := h.FormerBootCAs(); len(former) != 2 || former[1] != pinOfPEM(first) {
		t.Errorf("former boot CAs: %v", former)
	}
	h.must(h.KeepFormerBootCAs(h.dir, []string{pinOfPEM(second)}))
	for ca, accepted := range map[string]bool{string(first): false, string(second): true, string(third): true} {
		if err := h.verify(address, []byte(ca)); accepted != (err == nil) {
			t.Errorf("after the first one was dropped: %t, %v", accepted, err)
		}
	}
	h.must(h.KeepFormerBootCAs(h.dir, nil))
	if err := h.verify(address, second); err == nil {
		t.Error("a boot CA that was dropped is accepted")
	}
	if err := h.verify(address, third); err != nil {
		t.Error(err)
	}
}

func pinOfPEM(text []byte) string {
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	return pinOf(cert)
}

// The directory has the boot CAs as they are in use, also after a start; and once a rotation is complete, no key of the
// old one. An earlier release reads the one in use from the first two blocks.
func TestBootCAsOnTheDisk(t *testing.T) {
	h := newBootHead(t)
	old := h.BootCA()
	pin, err := h.CreateBootCA(h.dir)
	h.must(err)
	if loaded, err := Load(h.dir); err != nil || !slices.Equal(loaded.BootCAs(), []string{old.Pin(), pin}) {
		t.Fatalf("%v, %v", loaded.BootCAs(), err)
	}
	another := installBootHead(t, h.Bundle())
	if _, err = another.CreateBootCA(another.dir); err != nil { // and it is never used
		t.Fatal(err)
	}
	h.must(another.UseBootCA(another.dir, pin, true))
	h.must(h.UseBootCA(h.dir, pin, true))
	if !bytes.Equal(another.BootCAFile(), h.BootCAFile()) {
		t.Error("two heads have different files after the rotation")
	}
	loaded, err := Load(h.dir)
	if err != nil || !slices.Equal(loaded.BootCAs(), []string{pin}) || !slices.Equal(loaded.FormerBootCAs(),
		[]string{old.Pin()}) || len(loaded.BootCA().links) != 1 {
		t.Fatalf("%v, former %v, %v", loaded.BootCAs(), loaded.FormerBootCAs(), err)
	}
	text, err := os.ReadFile(filepath.Join(h.dir, fileBootCA))
	h.must(err)
	first, rest := pem.Decode(text)
	second, rest := pem.Decode(rest)
	if first.Type != "CERTIFICATE" || second.Type != "PRIVATE KEY" || bytes.Contains(rest, []byte("PRIVATE KEY")) {
		t.Errorf("the file is %s, %s, ...", first.Type, second.Type)
	}
	if key, err := x509.ParsePKCS8PrivateKey(second.Bytes); err != nil || !loaded.BootCA().key.Equal(key) {
		t.Errorf("the first key: %v", err)
	}
}

// A head takes the boot CAs of another head of its cluster, and none of another cluster, or that are damaged.
func TestAddBootCAs(t *testing.T) {
	h := newBootHead(t)
	other := installBootHead(t, h.Bundle())
	old := h.BootCA().Pin()
	pin, err := h.CreateBootCA(h.dir)
	h.must(err)
	h.must(other.AddBootCAs(other.dir, h.BootCAFile()))
	h.must(other.AddBootCAs(other.dir, h.BootCAFile()))
	if got := other.BootCAs(); !slices.Equal(got, []string{old, pin}) {
		t.Errorf("boot CAs %v", got)
	}
	h.must(h.UseBootCA(h.dir, pin, true))
	late := installBootHead(t, newBootHead(t).Bundle())
	late.bootCAs = other.bootCAs
	h.must(late.AddBootCAs(late.dir, h.BootCAFile()))
	h.must(late.UseBootCA(late.dir, pin, true))
	if !bytes.Equal(late.BootCAFile(), h.BootCAFile()) {
		t.Error("a head that was down has another file")
	}
	before := h.BootCAFile()
	for what, text := range map[string][]byte{"another cluster": newKeys(t, "c2").BootCAFile(), "nothing": nil,
		"no key": h.BootCA().PEM()} {
		if err := h.AddBootCAs(h.dir, text); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := h.UseBootCA(h.dir, old, false); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("one that it has not: %v", err)
	}
	if !bytes.Equal(before, h.BootCAFile()) {
		t.Error("what was refused changed the file")
	}
}
