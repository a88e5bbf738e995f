package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// site is where the members of a cluster are, with the keys of all, and what they say.
type site struct {
	*testing.T
	dir  string
	keys *auth.Keys
	all  []*node
	said said
}

// said are lines of a log.
type said struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(line))
	return len(line), nil
}

func (s *said) errors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.lines), func(line string) bool { return !strings.Contains(line, "level=ERROR") })
}

// node is a member with a listener, as a head has them.
type node struct {
	*cluster.Member
	cfg     cluster.Config
	server  *http.Server
	running atomic.Pointer[cluster.Member]
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, dir: t.TempDir()}
	var err error
	if s.keys, err = auth.Init(filepath.Join(s.dir, "keys"), "test"); err != nil {
		t.Fatal(err)
	}
	return s
}

// node makes a listener for a member that does not run yet, and the files by which it calls others.
func (s *site) node(name string) *node {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	dir := filepath.Join(s.dir, name)
	n := &node{cfg: cluster.Config{
		Logger: slog.New(slog.NewTextHandler(&s.said, nil)).With("member", name),
		Dir:    dir, Name: name, URL: "https://" + l.Addr().String(),
		TLS: cluster.PeerTLS{Cert: dir + "/peer.pem", Key: dir + "/peer-key.pem", CA: filepath.Join(s.dir, "keys/ca.pem")},
	}}
	key := must(auth.PeerKey())(s.T)
	csr := must(auth.PeerRequest(key))(s.T)
	cert, err := s.keys.CA.SignPeer(auth.Peer{Name: name, Role: auth.PeerHead}, csr, time.Now())
	if err := errors.Join(err, os.Mkdir(dir, 0o700), os.WriteFile(n.cfg.TLS.Cert, cert, 0o600), os.WriteFile(n.cfg.TLS.Key, key, 0o600)); err != nil {
		s.Fatal(err)
	}
	n.server = &http.Server{Handler: s.guarded(n), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: s.keys.CA.ServerCert(func() []string { return []string{"127.0.0.1"} }, time.Now).TLS()}
	go func() { _ = n.server.ServeTLS(l, "", "") }() // until it is closed
	s.Cleanup(func() { n.server.Close() })
	s.all = append(s.all, n)
	return n
}

// guarded lets members of the cluster in, as a head does.
func (s *site) guarded(n *node) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := n.running.Load()
		switch _, err := s.keys.CA.PeerOf(r.TLS, time.Now()); {
		case err != nil || !cluster.IsPeerPath(r.URL.Path):
			http.Error(w, "not for you", http.StatusUnauthorized)
		case m == nil:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		default:
			m.PeerHandler().ServeHTTP(w, r)
		}
	})
}

// run runs the node's member.
func (s *site) run(n *node) {
	s.Helper()
	m, err := cluster.Open(s.Context(), n.cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(m.Close)
	n.Member = m
	n.running.Store(m)
}

// eventually tries until it works.
func (s *site) eventually(what string, try func(ctx context.Context) error) {
	s.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		err = try(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	s.Fatalf("%s: %v", what, err)
}

// join adds a node to the cluster of another, as a learner that becomes a voter.
func (s *site) join(first *node, name string) *node {
	s.Helper()
	n := s.node(name)
	var id uint64
	s.eventually("add "+name, func(ctx context.Context) (err error) {
		id, n.cfg.Join, err = first.Add(ctx, n.cfg.URL)
		return err
	})
	s.run(n)
	s.eventually("promote "+name, func(ctx context.Context) error { return first.Promote(ctx, id) })
	s.eventually("await the promotion", func(context.Context) error {
		if n.IsLearner() {
			return errors.New("still learning")
		}
		return nil
	})
	return n
}

// three makes a cluster of one grow to three.
func three(t *testing.T) (*site, []*node) {
	t.Helper()
	s := newSite(t)
	first := s.node("head0")
	url := first.cfg.URL
	first.cfg.URL = "" // alone, it is reached by nobody
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	if _, err := first.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := first.SetURL(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return s, []*node{first, s.join(first, "head1"), s.join(first, "head2")}
}

func TestOneGrowsToThree(t *testing.T) {
	t.Parallel()
	s, m := three(t)
	if said := s.said.errors(); len(said) > 0 {
		t.Errorf("growing, they said: %q", said)
	}
	if m[0].ClusterID() != m[1].ClusterID() || m[0].ID() == m[1].ID() {
		t.Errorf("clusters %s and %s, members %x and %x", m[0].ClusterID(), m[1].ClusterID(), m[0].ID(), m[1].ID())
	}
	for i, p := range m[2].Peers() {
		if want := fmt.Sprint("head", i); p.Name != want || p.URL == "" || p.Learner {
			t.Errorf("member %d is %+v", i, p)
		}
	}
	got, err := m[2].Client().Get(t.Context(), "k", clientv3.WithSerializable())
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("what was written before it joined: %v, %v", got, err)
	}
	if _, _, err := m[1].Add(t.Context(), m[2].cfg.URL); !errors.Is(err, trivet.ErrExists) {
		t.Errorf("adding a member again: %v", err)
	}
	for _, n := range m { // whoever restarts is back, and the others go on meanwhile
		n.Close()
		s.eventually("write while one is down", func(ctx context.Context) error {
			for _, other := range m {
				if other != n {
					_, err := other.Client().Put(ctx, "k", n.cfg.Name)
					return err
				}
			}
			return nil
		})
		s.run(n)
		s.eventually("write by who came back", func(ctx context.Context) error {
			_, err := n.Client().Put(ctx, "back", n.cfg.Name)
			return err
		})
	}
}

func TestARemovedMemberIsOut(t *testing.T) {
	t.Parallel()
	s, m := three(t)
	gone := m[2].ID()
	s.eventually("remove", func(ctx context.Context) error { return m[0].Remove(ctx, gone) })
	if err := m[0].Remove(t.Context(), gone); err != nil {
		t.Errorf("removing it again: %v", err)
	}
	select {
	case err := <-m[2].Failed():
		if !errors.Is(err, cluster.ErrRemoved) {
			t.Errorf("it says: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the removed member goes on")
	}
	if n := len(m[0].Peers()); n != 2 {
		t.Errorf("%d members are left", n)
	}
	if _, err := m[1].Client().Put(t.Context(), "k", "after"); err != nil {
		t.Error(err)
	}
}

// A leader that is closed hands over: the others do not miss it, and the next one is there when it has ended.
func TestALeaderHandsOver(t *testing.T) {
	t.Parallel()
	s, m := three(t)
	leads := func(n *node) bool { return n.IsLeader() }
	first := m[slices.IndexFunc(m, leads)]
	over, err := first.Term(t.Context())
	first.Close()
	if said := s.said.errors(); err != nil || len(said) > 0 {
		t.Errorf("%v; closing, they said: %q", err, said)
	}
	<-over
	if first.IsLeader() || !slices.ContainsFunc(m, leads) {
		t.Error("nobody has taken over")
	}
}

// Where there is no quorum, who wants to write waits for as long as elections take, once; then it is told at once.
func TestNobodyWaitsLongForAQuorum(t *testing.T) {
	t.Parallel()
	_, m := three(t)
	m[0].Close()
	m[1].Close()
	for m[2].HasLeader() {
		time.Sleep(10 * time.Millisecond) // the loss is told to nobody
	}
	if _, err := m[2].Term(t.Context()); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the first one: %v", err)
	}
	began := time.Now()
	for range 1000 {
		if _, err := m[2].Term(t.Context()); !errors.Is(err, trivet.ErrUnavailable) {
			t.Fatalf("a later one: %v", err)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("a thousand later ones took %v", took)
	}
}

func TestStrangersAreNoMembers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.node("head0")
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: must(client.TLSConfig(s.keys.CA.Pin()))(t), ForceAttemptHTTP2: true}}
	resp, err := plain.Get(first.cfg.URL + "/members")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("somebody without a certificate: %s", resp.Status)
	}
	other := newSite(t).node("head1") // of another cluster, with another CA
	other.cfg.Join = []cluster.Peer{{Name: "head0", URL: first.cfg.URL}, {URL: other.cfg.URL}}
	if m, err := cluster.Open(t.Context(), other.cfg); err == nil {
		m.Close()
		t.Error("a member of another cluster got in")
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestWithoutQuorumReadsGoOn(t *testing.T) {
	t.Parallel()
	_, m := three(t)
	if resp := <-m[2].Client().Watch(t.Context(), "k", clientv3.WithRev(1)); resp.Err() != nil || len(resp.Events) != 1 {
		t.Fatalf("watch: %+v", resp)
	}
	m[0].Close()
	m[1].Close()
	for m[2].HasLeader() {
		time.Sleep(10 * time.Millisecond) // the loss is told to nobody
	}
	got, err := m[2].Client().Get(t.Context(), "k", clientv3.WithSerializable())
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("a read without a quorum: %v, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := m[2].WaitLeader(ctx); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("awaiting a leader: %v", err)
	}
	closed := make(chan struct{})
	go func() { m[2].Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("a member without a leader does not close")
	}
}
