package replica_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/auth/authtest"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/testhead"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// site is one cluster's records and keys, shared by heads that have a directory of blobs and a TLS server each.
type site struct {
	t           testing.TB
	tables      *state.Tables
	keys        *auth.Keys
	heads       []*head
	incarnation string // of the cluster; empty: it was never recovered
}

type head struct {
	site  *site
	name  string
	dir   string
	cert  *tls.Certificate
	store *blob.Store
	blobs *replica.Blobs
	logs  *replica.Logs
	boot  *httptest.Server
	reg   *prometheus.Registry
	addr  string
	http  *http.Server
	wrap  atomic.Pointer[func(http.Handler) http.Handler] // injects faults into the server
}

func newSite(t testing.TB, n int) *site {
	t.Helper()
	s := &site{t: t, keys: must(auth.Init(filepath.Join(t.TempDir(), "keys"), "c1"))(t)}
	s.tables = storetest.New(t, state.New)
	for i := range n {
		s.join(fmt.Sprintf("head%d", i))
	}
	return s
}

func (s *site) join(name string) *head {
	s.t.Helper()
	h := &head{site: s, name: name, dir: s.t.TempDir(), cert: s.certify(auth.Peer{Name: name, Role: auth.PeerHead}),
		addr: testhead.NewAddress() + ":0"} // no other program takes its port while it is down
	h.logs = s.newLogs(h)
	h.start()
	s.t.Cleanup(h.stop)
	s.heads = append(s.heads, h)
	s.record(name, trivet.RoleVoter, func(rec *trivet.Head) {
		rec.Status.State, rec.Status.Peer = trivet.HeadMember, "https://"+h.addr
	})
	return h
}

func (s *site) certify(p auth.Peer) *tls.Certificate {
	return authtest.PeerCert(s.t, s.keys, p, time.Now())
}

func (s *site) record(name, role string, change func(*trivet.Head)) {
	s.t.Helper()
	_, err := s.tables.Store.Update(s.t.Context(), func(tx *store.Tx) error {
		rec, err := s.tables.Heads.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) {
			rec, err = &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role}}, nil
		}
		if err != nil {
			return err
		}
		change(rec)
		return s.tables.Heads.In(tx).Put(rec)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// image creates a record that refers to a blob.
func (s *site) image(ref trivet.BlobRef) {
	s.t.Helper()
	_, err := s.tables.Store.Update(s.t.Context(), func(tx *store.Tx) error {
		return s.tables.Images.In(tx).Put(&trivet.Image{Meta: trivet.Meta{Project: "default", Name: "i" + ref.Digest[7:19]},
			Spec: trivet.ImageSpec{Format: "raw", Blob: ref}})
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// start runs the head, at the address that it had before.
func (h *head) start() {
	t := h.site.t
	t.Helper()
	h.store = must(blob.Open(h.dir, blob.Options{Damaged: func(d blob.Digest, err error) { h.blobs.Damaged(d, err) },
		Repaired: func(d blob.Digest) { h.blobs.Repaired(d) }}))(t)
	h.reg = prometheus.NewRegistry()
	incarnation := func() string { return h.site.incarnation }
	h.blobs = replica.NewBlobs(replica.BlobConfig{Self: h.name, Store: h.store, Tables: h.site.tables,
		Root:        &h.site.keys.CA.Root,
		Cert:        func() (*tls.Certificate, error) { return h.cert, nil },
		Incarnation: incarnation, Log: slog.New(slog.DiscardHandler), Metrics: h.reg, StallTimeout: 200 * time.Millisecond})
	h.boot = httptest.NewServer(h.blobs.BootHandler())
	l := must(net.Listen("tcp", h.addr))(t)
	h.addr = l.Addr().String()
	server := peer.NewServer(peer.Config{Root: &h.site.keys.CA.Root,
		Info:        func() peer.Info { return peer.Info{Head: h.name} },
		Membership:  &membership.Verifier{Records: membership.NewRecords(h.site.tables, h.name)},
		Incarnation: incarnation, Log: slog.New(slog.DiscardHandler)})
	h.blobs.Register(server)
	h.logs.Register(server)
	host := must(netip.ParseAddrPort(h.addr))(t).Addr().String()
	serving := h.site.keys.CA.ServerCert(func() []string { return []string{host} }, time.Now)
	h.http = &http.Server{TLSConfig: auth.ListenTLS(serving.GetCertificate),
		ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if wrap := h.wrap.Load(); wrap != nil {
				(*wrap)(server).ServeHTTP(w, r)
				return
			}
			server.ServeHTTP(w, r)
		})}
	go h.http.ServeTLS(l, "", "") // until stop
}

func (h *head) stop() {
	if h.http == nil {
		return
	}
	h.http.Close()
	h.boot.Close()
	h.blobs.Close()
	if err := h.store.Close(); err != nil {
		h.site.t.Error(err)
	}
	h.http = nil
}

func (h *head) inject(wrap func(http.Handler) http.Handler) { h.wrap.Store(&wrap) }

// content injects a fault into the content of blobs only.
func content(faulty http.HandlerFunc) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/content/") && !strings.HasSuffix(r.URL.Path, ".chunks") {
				faulty(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	seed := rand.NewChaCha8([32]byte{byte(n)})
	seed.Read(b)
	return b
}

func (h *head) put(data []byte) trivet.BlobRef {
	h.site.t.Helper()
	return must(h.store.Put(h.site.t.Context(), bytes.NewReader(data), trivet.BlobRef{}))(h.site.t)
}

func (h *head) holds(ref trivet.BlobRef) bool {
	d, err := blob.ParseDigest(ref.Digest)
	return err == nil && h.store.Has(d) && h.store.Verify(context.Background(), d, nil) == nil
}

func (s *site) holders(ref trivet.BlobRef) (n int) {
	for _, h := range s.heads {
		if h.http != nil && h.holds(ref) {
			n++
		}
	}
	return n
}

// metric returns the sum of a metric's values.
func (h *head) metric(name string) (sum float64) {
	for _, f := range must(h.reg.Gather())(h.site.t) {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
