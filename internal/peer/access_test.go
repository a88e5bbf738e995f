package peer

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/auth/authtest"
)

// fakeMembership has these members; all other heads are removed.
type fakeMembership map[string]bool

func (m fakeMembership) VerifyMember(head string) error {
	if m[head] {
		return nil
	}
	return fmt.Errorf("%w: it was removed", trivet.ErrForbidden)
}

func (m fakeMembership) VerifyNotRemoved(head, _ string) error { return m.VerifyMember(head) }

// readBody reports whether a request's body was read.
type readBody struct {
	io.Reader
	read bool
}

func (b *readBody) Read(p []byte) (int, error) {
	b.read = true
	return b.Reader.Read(p)
}

// Each access admits its callers and refuses all others before it reads their body: with 401 without a valid
// certificate, which a member retries, and with 403 for a head that is not a member, which that head takes for its
// removal.
func TestAccess(t *testing.T) {
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	past := now.AddDate(-10, 0, 0)
	certificate := func(k *auth.Keys, name string, role auth.PeerRole, at time.Time) []*x509.Certificate {
		t.Helper()
		return []*x509.Certificate{authtest.PeerCert(t, k, auth.Peer{Name: name, Role: role, Host: "10.0.0.1"}, at).Leaf}
	}
	const open, anonymous, refused = http.StatusOK, http.StatusUnauthorized, http.StatusForbidden
	for name, tc := range map[string]struct {
		chain []*x509.Certificate
		want  [5]int // by Access
		from  string // empty: its own address
	}{
		"no certificate": {nil, [5]int{anonymous, anonymous, anonymous, anonymous, open}, ""},
		"head of another cluster": {certificate(foreign, "head1", auth.PeerHead, now),
			[5]int{anonymous, anonymous, anonymous, anonymous, open}, ""},
		"head":    {certificate(keys, "head1", auth.PeerHead, now), [5]int{open, open, open, open, open}, ""},
		"witness": {certificate(keys, "head2", auth.PeerWitness, now), [5]int{open, open, refused, open, open}, ""},
		"head at another address": {certificate(keys, "head1", auth.PeerHead, now),
			[5]int{open, open, open, open, open}, "10.0.0.7:51234"},
		"witness at another address": {certificate(keys, "head2", auth.PeerWitness, now),
			[5]int{anonymous, anonymous, anonymous, anonymous, open}, "10.0.0.7:51234"},
		"removed head": {certificate(keys, "head9", auth.PeerHead, now),
			[5]int{open, refused, refused, refused, open}, ""},
		"witness whose certificate expired": {certificate(keys, "head2", auth.PeerWitness, past),
			[5]int{anonymous, anonymous, anonymous, open, open}, ""},
		"removed witness whose certificate expired": {certificate(keys, "head9", auth.PeerWitness, past),
			[5]int{anonymous, anonymous, anonymous, refused, open}, ""},
	} {
		for access, want := range tc.want {
			s := NewServer(Config{Root: &keys.CA.Root, Membership: fakeMembership{"head1": true, "head2": true},
				Log: slog.New(slog.DiscardHandler)})
			s.Register(Endpoint{Path: "test", Access: Access(access),
				Handle: func(*http.Request, auth.Peer, []byte) (any, error) { return struct{}{}, nil }})
			body := &readBody{Reader: strings.NewReader("{}")}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Prefix+"test", body)
			r.TLS, r.RemoteAddr = &tls.ConnectionState{PeerCertificates: tc.chain}, cmp.Or(tc.from, "10.0.0.1:51234")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != want || body.read != (want == open) {
				t.Errorf("%s, access %d: %d, body read: %v; want %d", name, access, w.Code, body.read, want)
			}
		}
	}
}

// A witness has no records: it responds to pings of every head, and refuses what is for members.
func TestAccessWithoutRecords(t *testing.T) {
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(Config{Root: &keys.CA.Root, Info: func() Info { return Info{Head: "head2"} },
		Log: slog.New(slog.DiscardHandler)})
	s.Register(Endpoint{Path: "test", Access: Member})
	cert := authtest.PeerCert(t, keys, auth.Peer{Name: "head1", Role: auth.PeerHead}, time.Now())
	for path, want := range map[string]int{pingPath: http.StatusOK, "test": http.StatusForbidden} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Prefix+path, strings.NewReader("{}"))
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}
