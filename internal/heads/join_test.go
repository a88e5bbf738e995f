package heads_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/heads"
)

// membership is a store's, of which heads' doors see all at once.
type membership struct {
	mu   sync.Mutex
	all  []cluster.Peer // guarded by mu
	adds func()         // guarded by mu; happens while a member is added
}

func (m *membership) Add(_ context.Context, url string) (uint64, []cluster.Peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.adds != nil {
		m.adds()
	}
	i := slices.IndexFunc(m.all, func(p cluster.Peer) bool { return p.URL == url && p.Name == "" })
	if i < 0 {
		i = len(m.all)
		m.all = append(m.all, cluster.Peer{ID: uint64(time.Now().UnixNano()), URL: url, Learner: true})
	}
	return m.all[i].ID, slices.Clone(m.all), nil
}

func (m *membership) Remove(_ context.Context, id uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = slices.DeleteFunc(m.all, func(p cluster.Peer) bool { return p.ID == id })
	return nil
}

func (m *membership) Peers() []cluster.Peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.all)
}
func (m *membership) ClusterID() string { return "1" }
func (m *membership) HasLeader() bool   { return true }

// joiner is a head that joins, and answers by its key where it says.
type joiner struct {
	site  *site
	token heads.Token
	ask   heads.Ask
}

func (s *site) joiner(id string) *joiner {
	s.t.Helper()
	secret := must(s.fleet.IssueJoin(s.t.Context(), trivet.RoleVoter, "", time.Now().Add(time.Hour)))(s.t)
	key := must(auth.PeerKey())(s.t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(s.t)
	cert := must(auth.SelfSigned(key))(s.t)
	there := &http.Server{TLSConfig: auth.ListenTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }),
		ErrorLog: log.New(io.Discard, "", 0)}
	go there.ServeTLS(l, "", "") // until it is closed
	s.t.Cleanup(func() { there.Close() })
	return &joiner{s, heads.Token{Pin: s.keys.CA.Pin(), Secret: secret, Role: trivet.RoleVoter}, heads.Ask{
		Role: trivet.RoleVoter, ID: id + "-0123456789abcdef", Peer: "https://" + l.Addr().String(), CSR: must(auth.PeerRequest(key))(s.t)}}
}

// join asks the first head once for a place.
func (j *joiner) join() (*heads.Place, error) {
	ctx, cancel := context.WithTimeout(j.site.t.Context(), 10*time.Second)
	defer cancel()
	once := slog.New(slog.NewTextHandler(stopper(cancel), nil)) // it says when it is going to ask again
	return heads.Join(ctx, []string{"https://" + j.site.heads[0].addr}, j.token, j.ask, once)
}

// stopper ends something at the first word that is written.
type stopper func()

func (s stopper) Write(p []byte) (int, error) { s(); return len(p), nil }

// the head that joined by a request.
func (j *joiner) record() *trivet.Head {
	for _, h := range j.site.fleet.Heads.List() {
		if h.Status.Join == j.ask.ID {
			return h
		}
	}
	j.site.t.Fatal("no such head joins")
	return nil
}

// A head that is removed while its member is added gets no place, and leaves no member: only one at a time may join.
func TestRemovedWhileItJoins(t *testing.T) {
	s := newSite(t, 1)
	j, next := s.joiner("a"), s.joiner("b")
	s.members.adds = func() {
		s.record(j.record().Name, trivet.RoleVoter, func(rec *trivet.Head) { rec.Spec.Remove = true })
	}
	if _, err := j.join(); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("it gets a place: %v", err)
	}
	if rec, left := j.record(), s.members.Peers(); rec.Status.Member != "" || len(left) > 0 {
		t.Errorf("it is member %q; left are %+v", rec.Status.Member, left)
	}
	s.members.adds = nil
	if place, err := next.join(); err != nil || place.Member != heads.MemberID(s.members.Peers()[0].ID) {
		t.Errorf("the next one gets no place: %v", err)
	}
}

// A member that is another head's, and about to be removed, is handed to nobody, though it has the same address.
func TestNoTwoHeadsAreOneMember(t *testing.T) {
	s := newSite(t, 1)
	j := s.joiner("a")
	s.members.all = []cluster.Peer{{ID: 7, URL: j.ask.Peer, Learner: true}}
	s.record("head7", trivet.RoleVoter, func(rec *trivet.Head) {
		rec.Spec.Remove, rec.Status.Member, rec.Status.Peer = true, heads.MemberID(7), j.ask.Peer
	})
	if _, err := j.join(); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("it gets a place: %v", err)
	}
	if rec := j.record(); rec.Status.Member != "" || len(s.members.Peers()) != 1 {
		t.Errorf("it is member %q of %+v", rec.Status.Member, s.members.Peers())
	}
	if err := s.members.Remove(t.Context(), 7); err != nil { // as the controller does
		t.Fatal(err)
	}
	if place, err := j.join(); err != nil || place.Member == heads.MemberID(7) {
		t.Errorf("when that one is gone: %v", err)
	}
}
