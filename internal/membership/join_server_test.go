package membership

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// joiner is a head that joins, and presents its key at its address.
type joiner struct {
	site  *site
	token Token
	req   JoinRequest
}

func (s *site) joiner(id string) *joiner {
	s.t.Helper()
	secret := must(s.records.IssueToken(s.t.Context(), trivet.RoleVoter, "", time.Now().Add(time.Hour)))(s.t)
	key := must(auth.PeerKey())(s.t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(s.t)
	cert := must(auth.SelfSigned(key))(s.t)
	server := &http.Server{TLSConfig: auth.ListenTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return cert, nil
	}), ErrorLog: log.New(io.Discard, "", 0)}
	go server.ServeTLS(l, "", "") // until it is closed
	s.t.Cleanup(func() { server.Close() })
	return &joiner{s, Token{Trust: s.keys.CA.Trust(), Secret: secret, Role: trivet.RoleVoter}, JoinRequest{
		Role: trivet.RoleVoter, ID: id + "-0123456789abcdef", Peer: "https://" + l.Addr().String(),
		CSR: must(auth.PeerRequest(key))(s.t)}}
}

// join sends one request to the first head.
func (j *joiner) join() (*JoinResponse, error) {
	ctx, cancel := context.WithTimeout(j.site.t.Context(), 10*time.Second)
	defer cancel()
	once := slog.New(slog.NewTextHandler(stopper(cancel), nil)) // it logs that it will retry
	return SendJoin(ctx, []string{"https://" + j.site.heads[0].addr}, j.token, j.req, once)
}

// stopper is a log that calls a function at its first line.
type stopper func()

func (s stopper) Write(p []byte) (int, error) { s(); return len(p), nil }

// record returns the head that joined by the request.
func (j *joiner) record() *trivet.Head {
	for _, h := range j.site.records.Heads.List() {
		if h.Status.Join == j.req.ID {
			return h
		}
	}
	j.site.t.Fatal("no head has joined")
	return nil
}

// A head that is removed while its member is added does not join, and leaves no member: only one at a time may join.
func TestRemovedWhileJoining(t *testing.T) {
	s := newSite(t, 1)
	j, next := s.joiner("a"), s.joiner("b")
	s.members.onAdd = func() {
		s.record(j.record().Name, trivet.RoleVoter, func(rec *trivet.Head) { rec.Spec.Remove = true })
	}
	if _, err := j.join(); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("it joins: %v", err)
	}
	if rec, left := j.record(), s.members.Peers(); rec.Status.Member != "" || len(left) > 0 {
		t.Errorf("it has member %q of %+v", rec.Status.Member, left)
	}
	s.members.onAdd = nil
	if resp, err := next.join(); err != nil || resp.Member != cluster.FormatID(s.members.Peers()[0].ID) {
		t.Errorf("the next head does not join: %v", err)
	}
}

// A head that was removed since gets an answer when it sends its request again.
func TestRemovedHeadAsksAgain(t *testing.T) {
	s := newSite(t, 1)
	j := s.joiner("a")
	resp, err := j.join()
	if err != nil {
		t.Fatal(err)
	}
	s.record(resp.Name, trivet.RoleVoter, func(rec *trivet.Head) { rec.Status.State = trivet.HeadRemoved })
	if _, err := j.join(); !errors.Is(err, trivet.ErrForbidden) || !strings.Contains(err.Error(), "was removed since") {
		t.Errorf("it gets %v", err)
	}
}

// A member of another head that is about to be removed is not used again, though it has the same address.
func TestMemberOfOtherHeadIsNotUsed(t *testing.T) {
	s := newSite(t, 1)
	j := s.joiner("a")
	s.members.all = []cluster.Peer{{ID: 7, URL: j.req.Peer, Learner: true}}
	s.record("head7", trivet.RoleVoter, func(rec *trivet.Head) {
		rec.Spec.Remove, rec.Status.Member, rec.Status.Peer = true, cluster.FormatID(7), j.req.Peer
	})
	if _, err := j.join(); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("it joins: %v", err)
	}
	if rec := j.record(); rec.Status.Member != "" || len(s.members.Peers()) != 1 {
		t.Errorf("it has member %q of %+v", rec.Status.Member, s.members.Peers())
	}
	if err := s.members.Remove(t.Context(), 7); err != nil { // as the reconciler does
		t.Fatal(err)
	}
	if resp, err := j.join(); err != nil || resp.Member == cluster.FormatID(7) {
		t.Errorf("after its removal: %v", err)
	}
}
