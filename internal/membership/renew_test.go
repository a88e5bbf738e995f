package membership

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
)

// A witness gets a certificate for the address by which it joined only, and none once its removal was requested.
func TestWitnessRenews(t *testing.T) {
	s := newSite(t, 2)
	const old = "https://127.0.0.9:7480"
	s.record("witness", trivet.RoleWitness, func(rec *trivet.Head) {
		rec.Status.State, rec.Status.Peer = trivet.HeadMember, old
	})
	cert := s.certify(auth.Peer{Name: "witness", Role: auth.PeerWitness, Host: "127.0.0.9"})
	renew := func(peer string, want error) {
		t.Helper()
		req := RenewRequest{CSR: must(auth.PeerRequest(must(auth.PeerKey())(t)))(t), Peer: peer}
		if err := s.renew(cert, req); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", peer, err, want)
		}
	}
	for _, peer := range []string{"https://" + trivet.ServerName + ":1", "https://HEAD.trivet.internal.:1",
		"https://*.trivet.internal:1", "https://" + s.heads[1].addr, "https://127.0.0.10:7480", "https://127.0.0.9:7481",
		"https://head1.example:7480"} {
		renew(peer, trivet.ErrForbidden)
	}
	renew(old, nil)
	renew("https://[::ffff:127.0.0.9]:7480", nil)
	elsewhere := s.certify(auth.Peer{Name: "witness", Role: auth.PeerWitness, Host: "10.0.0.9"})
	if err := s.renew(elsewhere, RenewRequest{Peer: old}); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("from another address than the certificate's: %v", err)
	}
	s.record("witness", trivet.RoleWitness, func(rec *trivet.Head) { rec.Spec.Remove = true })
	renew(old, trivet.ErrForbidden)
	s.record("full", trivet.RoleVoter, func(rec *trivet.Head) { rec.Status.Peer = old })
	cert = s.certify(auth.Peer{Name: "full", Role: auth.PeerWitness, Host: "127.0.0.9"})
	if err := s.renew(cert, RenewRequest{Peer: old}); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("a witness by its certificate, and not by its record: %v", err)
	}
}

// A valid certificate alone gets no list of the members: from a full head it needs a record, from a witness the name of
// a member.
func TestListOfMembersNeedsARecord(t *testing.T) {
	s := newSite(t, 1)
	s.members.all = []cluster.Peer{{ID: 1, Name: "head0", URL: "https://" + s.heads[0].addr}}
	list := func(name string) error {
		var resp VerifyResponse
		cert := s.certify(auth.Peer{Name: name, Role: auth.PeerWitness, Host: "127.0.0.9"})
		err := s.client(cert).Call(t.Context(), "https://"+s.heads[0].addr, verifyPath, VerifyRequest{}, &resp)
		if err != nil && len(resp.Peers) > 0 {
			t.Errorf("%s got %v", name, resp.Peers)
		}
		return err
	}
	if err := list("unknown"); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a head without a record: %v", err)
	}
	if err := list("head0"); err != nil {
		t.Error(err)
	}
	s.record("head0", "", func(rec *trivet.Head) { rec.Status.State = trivet.HeadRemoved })
	if err := list("head0"); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("a removed head: %v", err)
	}
	witness := &WitnessVerifier{&s.members}
	if err := witness.VerifyMember("unknown"); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a witness: %v", err)
	}
	if err := witness.VerifyMember("head0"); err != nil {
		t.Errorf("a witness: %v", err)
	}
}

// A witness that joins by the name of all heads is refused before its token is used.
func TestWitnessWithNameOfAllHeads(t *testing.T) {
	s := newSite(t, 1)
	secret := must(s.records.IssueToken(t.Context(), trivet.RoleWitness, "", time.Now().Add(time.Hour)))(t)
	token := Token{Trust: s.keys.CA.Trust(), Secret: secret, Role: trivet.RoleWitness}
	req := JoinRequest{Role: token.Role, ID: "0123456789abcdef", Peer: "https://" + trivet.ServerName + ":7480",
		CSR: must(auth.PeerRequest(must(auth.PeerKey())(t)))(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := SendJoin(ctx, []string{"https://" + s.heads[0].addr}, token, req,
		slog.New(slog.DiscardHandler)); !errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
	if n := s.records.Heads.Len(); n != 1 {
		t.Errorf("there are %d heads", n)
	}
}

// A witness that calls from another address than the one that it advertises is refused before its token is used.
func TestWitnessJoinsFromItsAddress(t *testing.T) {
	s := newSite(t, 1)
	secret := must(s.records.IssueToken(t.Context(), trivet.RoleWitness, "", time.Now().Add(time.Hour)))(t)
	token := Token{Trust: s.keys.CA.Trust(), Secret: secret, Role: trivet.RoleWitness}
	req := JoinRequest{Role: token.Role, ID: "0123456789abcdef", Peer: "https://10.0.0.9:7480",
		CSR: must(auth.PeerRequest(must(auth.PeerKey())(t)))(t)}
	_, err := SendJoin(t.Context(), []string{"https://" + s.heads[0].addr}, token, req,
		slog.New(slog.DiscardHandler))
	if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "advertises 10.0.0.9, and called from 127.") {
		t.Error(err)
	}
	if n := s.records.Heads.Len(); n != 1 {
		t.Errorf("there are %d heads", n)
	}
}
