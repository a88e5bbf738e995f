package membership

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// A witness gets a certificate for its own address, never for that of another head or for the name of all. An address
// that is refused is not recorded either.
func TestWitnessRenews(t *testing.T) {
	s := newSite(t, 2)
	const old, api = "https://10.0.0.9:7480", "https://head1.example:7480"
	s.record("witness", trivet.RoleWitness, func(rec *trivet.Head) {
		rec.Status.State, rec.Status.Peer = trivet.HeadMember, old
	})
	s.record("head1", trivet.RoleVoter, func(rec *trivet.Head) { rec.Status.API = []string{api} })
	s.record("gone", trivet.RoleVoter, func(rec *trivet.Head) {
		rec.Status.State, rec.Status.Peer = trivet.HeadRemoved, "https://10.0.0.8:7480"
	})
	cert := s.certify(auth.Peer{Name: "witness", Role: auth.PeerWitness, Host: "10.0.0.9"})
	for _, tc := range []struct {
		peer string
		want error
	}{
		{"https://" + trivet.ServerName + ":1", trivet.ErrInvalid},
		{"https://HEAD.trivet.internal.:1", trivet.ErrInvalid},
		{"https://*.trivet.internal:1", trivet.ErrInvalid},
		{"https://" + s.heads[1].addr, trivet.ErrExists},
		{"https://" + s.heads[1].addr + "/", trivet.ErrExists},
		{api, trivet.ErrExists},
		{"https://HEAD1.example.:7480", trivet.ErrExists},
		{old, nil},
		{"https://10.0.0.8:7480", nil},
		{"https://10.0.0.10:7480", nil},
	} {
		before := must(s.records.Heads.Get("witness"))(t).Status.Peer
		req := RenewRequest{CSR: must(auth.PeerRequest(must(auth.PeerKey())(t)))(t), Peer: tc.peer}
		err := s.renew(cert, req)
		after := must(s.records.Heads.Get("witness"))(t).Status.Peer
		if tc.want == nil {
			before = tc.peer
		}
		if !errors.Is(err, tc.want) || after != before {
			t.Errorf("%s: %v, want %v; its record has %s", tc.peer, err, tc.want, after)
		}
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
