package membership

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/auth/authtest"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
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

// newRecords returns the records of a real store that holds these heads.
func newRecords(t testing.TB, heads ...*trivet.Head) *Records {
	t.Helper()
	r := NewRecords(storetest.New(t, state.New), "head0")
	_, err := r.Store.Update(t.Context(), func(tx *store.Tx) (err error) {
		for _, h := range heads {
			err = errors.Join(err, r.Heads.In(tx).Create(h))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// site is one cluster's records and keys, shared by heads that have a TLS server each.
type site struct {
	t       testing.TB
	records *Records
	keys    *auth.Keys
	members fakeMembers
	heads   []*head
}

type head struct {
	name, addr string
}

func newSite(t testing.TB, n int) *site {
	t.Helper()
	s := &site{t: t, records: newRecords(t), keys: must(auth.Init(filepath.Join(t.TempDir(), "keys"), "c1"))(t)}
	for i := range n {
		s.addHead(fmt.Sprintf("head%d", i))
	}
	return s
}

func (s *site) addHead(name string) {
	s.t.Helper()
	cert := s.keys.CA.ServerCert(func() []string { return []string{"127.0.0.1"} }, time.Now)
	h := &head{name, s.serve(name, cert.GetCertificate)}
	s.heads = append(s.heads, h)
	s.record(name, trivet.RoleVoter, func(rec *trivet.Head) {
		rec.Status.State, rec.Status.Peer = trivet.HeadMember, "https://"+h.addr
	})
}

// serve serves the endpoints of a full head with a certificate, until the test ends, and returns their address.
func (s *site) serve(name string, cert func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (addr string) {
	s.t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(s.t)
	info := func() peer.Info { return peer.Info{Head: name} }
	discard := slog.New(slog.DiscardHandler)
	server := peer.NewServer(peer.Config{Root: &s.keys.CA.Root, Info: info,
		Membership: &Verifier{s.records, &s.members}, Log: discard})
	NewServer(ServerConfig{Info: info, Members: &s.members, Records: s.records, Keys: s.keys,
		Log: discard}).Register(server)
	server.Register(peer.Endpoint{Path: "test/full", Access: peer.FullMember}) // as those of blobs, logs and presence
	http := &http.Server{TLSConfig: auth.ListenTLS(cert), ErrorLog: log.New(io.Discard, "", 0), Handler: server}
	go http.ServeTLS(l, "", "") // until it is closed
	s.t.Cleanup(func() { http.Close() })
	return l.Addr().String()
}

func (s *site) certify(p auth.Peer) *tls.Certificate {
	return authtest.PeerCert(s.t, s.keys, p, time.Now())
}

// client calls heads as the member that has a certificate.
func (s *site) client(cert *tls.Certificate) *peer.Client {
	c := peer.NewClient(func() (*tls.Certificate, error) { return cert, nil },
		func() *auth.Root { return &s.keys.CA.Root },
		func() peer.Info { return peer.Info{} })
	s.t.Cleanup(c.Close)
	return c
}

// renew requests a certificate from the first head.
func (s *site) renew(cert *tls.Certificate, req RenewRequest) error {
	var resp RenewResponse
	return s.client(cert).Call(s.t.Context(), "https://"+s.heads[0].addr, renewPath, req, &resp)
}

func (s *site) record(name, role string, change func(*trivet.Head)) {
	s.t.Helper()
	_, err := s.records.Store.Update(s.t.Context(), func(tx *store.Tx) error {
		rec, err := s.records.Heads.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) {
			rec, err = &trivet.Head{Meta: trivet.Meta{Name: name}, Spec: trivet.HeadSpec{Role: role}}, nil
		}
		if err != nil {
			return err
		}
		change(rec)
		return s.records.Heads.In(tx).Put(rec)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// fakeMembers is the membership of a store, which all heads see at once.
type fakeMembers struct {
	mu    sync.Mutex
	all   []cluster.Peer // guarded by mu
	onAdd func()         // guarded by mu; called while a member is added
}

func (m *fakeMembers) Add(_ context.Context, url string) (uint64, []cluster.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.onAdd != nil {
		m.onAdd()
	}
	i := slices.IndexFunc(m.all, func(p cluster.Peer) bool { return p.URL == url && p.Name == "" })
	if i < 0 {
		i = len(m.all)
		m.all = append(m.all, cluster.Peer{ID: uint64(time.Now().UnixNano()), URL: url, Learner: true})
	}
	return m.all[i].ID, slices.Clone(m.all), nil
}

func (m *fakeMembers) Remove(_ context.Context, id uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.DeleteFunc(m.all, func(p cluster.Peer) bool { return p.ID == id })
	return nil
}

func (m *fakeMembers) Peers() []cluster.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.all)
}
func (m *fakeMembers) HasLeader() bool { return true }
