package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// must returns the value of a call that must succeed.
func mustCA[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// reload returns the keys as the next start reads them.
func reload(t *testing.T, dir string) *Keys {
	t.Helper()
	return mustCA(Load(dir))(t)
}

// A rotation of the CA on two heads: each start uses what is on the disk, both CAs are trusted until the old one is
// dropped, and its key is gone then.
func TestRotateCA(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "keys"), filepath.Join(t.TempDir(), "keys")
	a := mustCA(Init(one, "c1"))(t)
	b := mustCA(Install(two, a.Bundle()))(t)
	old := a.CA.Pins()[0]
	next := mustCA(a.CreateCA(one))(t)
	if got := a.CA.Pins(); !slices.Equal(got, []string{old}) {
		t.Errorf("the process uses %v before its next start", got)
	}
	if err := b.UseCAs(two, []string{old, next}); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a CA that the head does not have: %v", err)
	}
	if err := b.AddCAs(two, a.CABundle()); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, tc := range []struct {
		use    []string
		keys   int
		signer string
	}{{[]string{old, next}, 2, old}, {[]string{next, old}, 2, next}, {[]string{next}, 1, next}} {
		if err := errors.Join(a.UseCAs(one, tc.use), b.UseCAs(two, tc.use)); err != nil {
			t.Fatal(err)
		}
		former := a.CA
		a, b = reload(t, one), reload(t, two)
		if !slices.Equal(a.CA.Pins(), tc.use) || !slices.Equal(b.StoredCAs(), tc.use) {
			t.Errorf("want %v; the heads have %v and %v", tc.use, a.CA.Pins(), b.StoredCAs())
		}
		if keys := mustCA(parseCAKeys(a.CABundle().Key))(t); len(keys) != tc.keys {
			t.Errorf("with %v there are %d keys", tc.use, len(keys))
		}
		cert := peerCert(t, b.CA)
		if !a.CA.SignedByFirst(cert) {
			t.Errorf("with %v the first has not signed", tc.use)
		}
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		for name, ca := range map[string]*CA{"this phase": a.CA, "the phase before": former} {
			_, err := ca.PeerOf(state, now)
			if trusts := slices.Contains(ca.Pins(), tc.signer); trusts != (err == nil) {
				t.Errorf("with %v, by the CAs of %s: %v", tc.use, name, err)
			}
		}
	}
	if a.CA.Matches(old) || !a.CA.Follows(old) || !a.CA.Follows(next) {
		t.Error("the CA does not follow the old one")
	}
}

func peerCert(t *testing.T, ca *CA) *x509.Certificate {
	t.Helper()
	csr := mustCA(PeerRequest(mustCA(PeerKey())(t)))(t)
	text := mustCA(ca.SignPeer(Peer{Name: "head0", Role: PeerHead}, csr, time.Now()))(t)
	return blocksOf(t, text)
}

func blocksOf(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	return mustCA(x509.ParseCertificate(blocks(text)[0].Bytes))(t)
}

// A head that was away while the CA was replaced learns it from the server's chain; of a server of another cluster, or
// of one that only has the certificate of the successor, it does not.
func TestReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	k := mustCA(Init(dir, "c1"))(t)
	former := k.CA
	connect := func(root *Root, chain *tls.Certificate) error {
		server, client := net.Pipe()
		defer server.Close()
		defer client.Close()
		go func() { _ = tls.Server(server, &tls.Config{Certificates: []tls.Certificate{*chain}}).Handshake() }()
		cfg := root.PeerTLS(func() (*tls.Certificate, error) { return chain, nil })
		cfg.ServerName = "127.0.0.1"
		return tls.Client(client, cfg).Handshake()
	}
	names := func() []string { return []string{"127.0.0.1"} }
	for i := range maxLinks + 1 {
		next := mustCA(k.CreateCA(dir))(t)
		if err := k.UseCAs(dir, []string{next}); err != nil {
			t.Fatal(err)
		}
		k = reload(t, dir)
		chain := mustCA(k.CA.ServerCert(names, time.Now).GetCertificate(nil))(t)
		if err := connect(&k.CA.Root, chain); err != nil {
			t.Errorf("by the present CA: %v", err)
		}
		err := connect(&former.Root, chain)
		if got := former.Replaced(err); err == nil || got != (i < maxLinks) {
			t.Errorf("after %d rotations: %t, %v", i+1, got, err)
		}
		if i == 0 {
			other := mustCA(Init(filepath.Join(t.TempDir(), "keys"), "c1"))(t)
			forged := mustCA(other.CA.ServerCert(names, time.Now).GetCertificate(nil))(t)
			if err := connect(&former.Root, forged); err == nil || former.Replaced(err) {
				t.Errorf("by a CA of the same name: %v", err)
			}
			forged.Certificate = append(forged.Certificate, chain.Certificate[1:]...)
			if err := connect(&former.Root, forged); err == nil || former.Replaced(err) {
				t.Errorf("with the certificates of the successor: %v", err)
			}
		}
	}
}

// A key that names a CA of long ago accepts the CAs that followed, and no other CA of that name.
func TestFollows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	k := mustCA(Init(dir, "c1"))(t)
	var pins []string
	for range maxFormer {
		pins = append(pins, k.CA.Pins()[0])
		next := mustCA(k.CreateCA(dir))(t)
		if err := k.UseCAs(dir, []string{next}); err != nil {
			t.Fatal(err)
		}
		k = reload(t, dir)
	}
	for i, pin := range pins {
		if kept := i >= len(pins)-maxFormer/2; k.CA.Follows(pin) != kept {
			t.Errorf("after %d rotations, CA %d: %t", len(pins), i, !kept)
		}
	}
	other := mustCA(Init(filepath.Join(t.TempDir(), "keys"), "c1"))(t)
	forged := mustCA(parseCA(other.bundle[fileCACert], other.bundle[fileCAKey], k.bundle[fileFormerCAs]))(t)
	if forged.Follows(pins[len(pins)-1]) || k.CA.Follows(other.CA.Trust()) {
		t.Error("a CA that no former one signed follows it")
	}
}

// A change that fails at any of its files leaves a directory that can be read, and can be made again.
func TestChangeOfCAsSurvivesACrash(t *testing.T) {
	for _, change := range []func(k *Keys, dir, next string) error{
		func(k *Keys, dir, _ string) error { _, err := k.CreateCA(dir); return err },
		func(k *Keys, dir, next string) error { return k.UseCAs(dir, []string{next}) },
	} {
		for _, blocked := range []string{fileCAKey, fileFormerCAs, fileCACert} {
			dir := filepath.Join(t.TempDir(), "keys")
			k := mustCA(Init(dir, "c1"))(t)
			next := mustCA(k.CreateCA(dir))(t)
			path := filepath.Join(dir, blocked)
			text := mustCA(os.ReadFile(path))(t)
			if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
				t.Fatal(err)
			}
			failed := change(k, dir, next)
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, text, modeOf(blocked))); err != nil {
				t.Fatal(err)
			}
			read := reload(t, dir)
			if err := change(read, dir, next); err != nil && failed != nil {
				t.Errorf("again, after %s could not be written: %v", blocked, err)
			}
			reload(t, dir)
		}
	}
}

// What another head sends is refused where it is not CAs of this cluster; one of both CAs that was never used gives
// way.
func TestAddCAs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	k := mustCA(Init(dir, "c1"))(t)
	other := mustCA(Init(filepath.Join(t.TempDir(), "keys"), "c2"))(t)
	for name, b := range map[string]CABundle{
		"another cluster": other.CABundle(), "no key": {Certs: k.CABundle().Certs},
		"another key": {Certs: k.CABundle().Certs, Key: other.CABundle().Key}, "nothing": {},
		"other predecessors": {Certs: k.CABundle().Certs, Key: k.CABundle().Key, Former: []byte("x")},
	} {
		if err := k.AddCAs(dir, b); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	lost := mustCA(k.CreateCA(dir))(t)
	used := mustCA(k.CreateCA(dir))(t)
	if got := k.StoredCAs(); len(got) != maxCAs || got[1] != used || slices.Contains(got, lost) {
		t.Errorf("the CAs are %v", got)
	}
	if info, err := os.Stat(filepath.Join(dir, fileCAKey)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the keys: %v, %v", info, err)
	}
}
