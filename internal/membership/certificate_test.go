package membership

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet/internal/auth"
)

// A head that runs for a year has a valid certificate at every moment, each with a new key; while a new one cannot be
// written, that is retried.
func TestCertificateRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(10 * 365 * 24 * time.Hour) // the bubble's clock starts with the validity of the CA
		dir := filepath.Join(t.TempDir(), "data")
		keys, err := auth.Init(filepath.Join(dir, "keys"), "c1")
		if err != nil {
			t.Fatal(err)
		}
		l := &Local{cfg: Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}, keys: keys,
			data: dataFile{Name: "head0"}}
		l.certs.dir = dir
		l.root.Store(&keys.CA.Root)
		if err := l.signCertificate(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.RotateCertificate(ctx); close(done) }()
		seen := map[string]bool{}
		for day := range 365 {
			if day == 119 { // for two days nothing can be written
				move(t, dir, dir+"-moved")
			}
			if day == 121 {
				move(t, dir+"-moved", dir)
			}
			time.Sleep(24 * time.Hour)
			synctest.Wait()
			cert := l.certs.member.Load()
			seen[string(cert.Leaf.RawSubjectPublicKeyInfo)] = true
			state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}
			if p, err := keys.CA.PeerOf(state, time.Now()); err != nil || p.Name != "head0" {
				t.Fatalf("day %d: %v, %v", day, p, err)
			}
		}
		stop()
		<-done
		if text, err := os.ReadFile(l.certs.file()); err != nil || l.certs.use(text) != nil {
			t.Errorf("the file: %v", err)
		}
		if len(seen) != 7 { // of about 60 days each
			t.Errorf("%d keys in a year", len(seen))
		}
	})
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
