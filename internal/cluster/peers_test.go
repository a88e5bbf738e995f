package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
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

// site is the members of a cluster, with their keys and their log.
type site struct {
	*testing.T
	dir      string
	keys     *auth.Keys
	all      []*node
	election time.Duration // of its members; 0: the default
	log      logLines
}

// logLines is the lines of a log.
type logLines struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

func (l *logLines) errors() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool {
		return !strings.Contains(line, "level=ERROR")
	})
}

// node is a member with a listener, as in a head.
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

// node creates the listener of a member that does not run yet, and the files for its calls to others.
func (s *site) node(name string) *node {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	dir := filepath.Join(s.dir, name)
	n := &node{cfg: cluster.Config{
		Election: s.election,
		Logger:   slog.New(slog.NewTextHandler(&s.log, nil)).With("member", name),
		Dir:      dir, Name: name, URL: "https://" + l.Addr().String(),
		TLS: cluster.PeerTLS{Cert: dir + "/peer.pem", Key: dir + "/peer-key.pem",
			CA: filepath.Join(s.dir, "keys/ca.pem")},
	}}
	key := must(auth.PeerKey())(s.T)
	csr := must(auth.PeerRequest(key))(s.T)
	cert, err := s.keys.CA.SignPeer(auth.Peer{Name: name, Role: auth.PeerHead}, csr, time.Now())
	if err := errors.Join(err, os.Mkdir(dir, 0o700), os.WriteFile(n.cfg.TLS.Cert, cert, 0o600),
		os.WriteFile(n.cfg.TLS.Key, key, 0o600)); err != nil {
		s.Fatal(err)
	}
	n.server = &http.Server{Handler: s.authenticated(n), ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: s.keys.CA.ServerCert(func() []string { return []string{"127.0.0.1"} }, time.Now).TLS()}
	go func() { _ = n.server.ServeTLS(l, "", "") }() // until it is closed
	s.Cleanup(func() { n.server.Close() })
	s.all = append(s.all, n)
	return n
}

// authenticated returns a handler that serves members of the cluster only, as a head does.
func (s *site) authenticated(n *node) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := n.running.Load()
		switch _, err := s.keys.CA.PeerOf(r.TLS, time.Now()); {
		case err != nil || !cluster.IsPeerPath(r.URL.Path):
			http.Error(w, "members only", http.StatusUnauthorized)
		case m == nil:
			http.Error(w, "starting", http.StatusServiceUnavailable)
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

// eventually retries until try succeeds.
func (s *site) eventually(what string, try func(ctx context.Context) error) {
	s.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
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
	s.joinNode(first, n)
	return n
}

func (s *site) joinNode(first, n *node) {
	s.Helper()
	name := n.cfg.Name
	var id uint64
	s.eventually("add "+name, func(ctx context.Context) (err error) {
		id, n.cfg.Join, err = first.Add(ctx, n.cfg.URL)
		return err
	})
	s.run(n)
	s.eventually("promote "+name, func(ctx context.Context) error { return first.Promote(ctx, id) })
	s.eventually("wait for the promotion", func(context.Context) error {
		if n.IsLearner() {
			return errors.New("still a learner")
		}
		return nil
	})
}

// three starts a single member and adds two.
func three(t *testing.T) (*site, []*node) {
	t.Helper()
	return newSite(t).three()
}

func (s *site) three() (*site, []*node) {
	s.Helper()
	first := s.node("head0")
	url := first.cfg.URL
	first.cfg.URL = "" // a single member needs none
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	if _, err := first.Client().Put(s.Context(), "k", "v"); err != nil {
		s.Fatal(err)
	}
	if err := first.SetURL(s.Context(), url); err != nil {
		s.Fatal(err)
	}
	return s, []*node{first, s.join(first, "head1"), s.join(first, "head2")}
}

func TestGrowToThree(t *testing.T) {
	t.Parallel()
	s, m := three(t)
	if errs := s.log.errors(); len(errs) > 0 {
		t.Errorf("logged errors: %q", errs)
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
		t.Errorf("a key written before the member joined: %v, %v", got, err)
	}
	if _, _, err := m[1].Add(t.Context(), m[2].cfg.URL); !errors.Is(err, trivet.ErrExists) {
		t.Errorf("adding a member again: %v", err)
	}
	for _, n := range m { // each member restarts while the others serve writes
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
		s.eventually("write by the restarted member", func(ctx context.Context) error {
			_, err := n.Client().Put(ctx, "back", n.cfg.Name)
			return err
		})
	}
}

func TestRemovedMemberStops(t *testing.T) {
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
			t.Errorf("the error is %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the removed member did not stop")
	}
	if n := len(m[0].Peers()); n != 2 {
		t.Errorf("%d members are left", n)
	}
	if _, err := m[1].Client().Put(t.Context(), "k", "after"); err != nil {
		t.Error(err)
	}
}

// A leader that is closed transfers its leadership first: when it has stopped, another member is the leader. Each
// member has as long as an election takes to become the leader.
func TestLeaderTransfersLeadership(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.election = 20 * time.Second
	_, m := s.three()
	isLeader := func(n *node) bool { return n.IsLeader() }
	first := m[slices.IndexFunc(m, isLeader)]
	over, err := first.Term(t.Context())
	first.Close()
	if errs := s.log.errors(); err != nil || len(errs) > 0 {
		t.Errorf("%v; logged errors: %q", err, errs)
	}
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("the former leader knows no other")
	}
	if first.IsLeader() || !slices.ContainsFunc(m, isLeader) {
		t.Error("no other member is the leader")
	}
}

// Without a quorum, the first Term waits for as long as elections take; later ones return an error at once.
func TestTermWithoutQuorum(t *testing.T) {
	t.Parallel()
	_, m := three(t)
	m[0].Close()
	m[1].Close()
	for without := 0; without < 200; without++ { // for two seconds: it may be elected by a member that was stopping
		if time.Sleep(10 * time.Millisecond); m[2].HasLeader() {
			without = 0
		}
	}
	if _, err := m[2].Term(t.Context()); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("the first call: %v", err)
	}
	began := time.Now()
	for range 1000 {
		if _, err := m[2].Term(t.Context()); !errors.Is(err, trivet.ErrUnavailable) {
			t.Fatalf("a later call: %v", err)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("1000 later calls took %v", took)
	}
}

// A member that has not applied yet that another was added answers that one with the members of before.
func TestJoinByAMemberThatIsBehind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.node("head0")
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	before := httptest.NewRecorder()
	first.PeerHandler().ServeHTTP(before, httptest.NewRequest(http.MethodGet, "/members", nil))
	var behind atomic.Int32
	current := first.server.Handler
	first.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/members" || behind.Add(1) > 3 {
			current.ServeHTTP(w, r)
			return
		}
		maps.Copy(w.Header(), before.Header())
		_, _ = w.Write(before.Body.Bytes())
	})
	s.join(first, "head1")
	if n := behind.Load(); n <= 3 {
		t.Errorf("the members were asked for %d times, want more than 3", n)
	}
}

func TestUnknownClientsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.node("head0")
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	cfg := must(client.TLSConfig(s.keys.CA.Trust()))(t)
	plain := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}
	resp, err := plain.Get(first.cfg.URL + "/members")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a client without a certificate: %s", resp.Status)
	}
	other := newSite(t).node("head1") // of another cluster, with another CA
	other.cfg.Join = []cluster.Peer{{Name: "head0", URL: first.cfg.URL}, {URL: other.cfg.URL}}
	if m, err := cluster.Open(t.Context(), other.cfg); err == nil {
		m.Close()
		t.Error("a member of another cluster was accepted")
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

// learner starts a single member, and a learner of it.
func (s *site) learner() (first, learner *node) {
	s.Helper()
	first = s.node("head0")
	s.run(first)
	s.eventually("a leader", first.WaitLeader)
	learner = s.node("head1")
	s.eventually("add", func(ctx context.Context) (err error) {
		_, learner.cfg.Join, err = first.Add(ctx, learner.cfg.URL)
		return err
	})
	s.run(learner)
	s.eventually("catch up", learner.CatchUp)
	if !learner.IsLearner() {
		s.Fatal("it is no learner")
	}
	return first, learner
}

// A learner notices that the leader does not respond any more, and that it does again.
func TestLearnerForgetsALostLeader(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, learner := s.learner()
	s.eventually("has caught up", func(context.Context) error {
		if learner.Current().IsZero() {
			return errors.New("it has not read yet")
		}
		return nil
	})
	first.running.Store(nil)
	first.Close()
	s.eventually("no leader", func(context.Context) error {
		if learner.HasLeader() {
			return errors.New("it takes the leader for alive")
		}
		return nil
	})
	s.run(first)
	s.eventually("a leader again", learner.WaitLeader)
	if _, err := learner.Client().Put(t.Context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

func TestReadsWithoutQuorum(t *testing.T) {
	t.Parallel()
	_, m := three(t)
	resp := <-m[2].Client().Watch(t.Context(), "k", clientv3.WithRev(1))
	if resp.Err() != nil || len(resp.Events) != 1 {
		t.Fatalf("watch: %+v", resp)
	}
	m[0].Close()
	m[1].Close()
	for m[2].HasLeader() {
		time.Sleep(10 * time.Millisecond) // the loss of the leader has no notification
	}
	got, err := m[2].Client().Get(t.Context(), "k", clientv3.WithSerializable())
	if err != nil || len(got.Kvs) != 1 {
		t.Errorf("a read without a quorum: %v, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := m[2].WaitLeader(ctx); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("waiting for a leader: %v", err)
	}
	closed := make(chan struct{})
	go func() { m[2].Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("a member without a leader does not close")
	}
}
