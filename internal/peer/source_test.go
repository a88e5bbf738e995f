package peer

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// A witness is served at the address of its certificate only, a full head at all.
func TestSource(t *testing.T) {
	s := &Sources{lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if host != "witness.example" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("::ffff:10.0.0.9"), netip.MustParseAddr("fd00::9")}, nil
	}}
	for _, tc := range []struct {
		role auth.PeerRole
		host string
		from string
		good bool
	}{
		{auth.PeerWitness, "10.0.0.9", "10.0.0.9:51234", true},
		{auth.PeerWitness, "10.0.0.9", "[::ffff:10.0.0.9]:51234", true},
		{auth.PeerWitness, "10.0.0.9", "10.0.0.8:51234", false},
		{auth.PeerWitness, "10.0.0.9", "127.0.0.1:51234", false},
		{auth.PeerWitness, "10.0.0.9", "", false},
		{auth.PeerWitness, "fd00::9", "[fd00::9]:51234", true},
		{auth.PeerWitness, "fd00::9", "[fd00::8]:51234", false},
		{auth.PeerWitness, "fe80::9", "[fe80::9%eth0]:51234", true},
		{auth.PeerWitness, "127.0.0.9", "127.0.0.1:51234", true},
		{auth.PeerWitness, "127.0.0.9", "10.0.0.9:51234", false},
		{auth.PeerWitness, "witness.example", "10.0.0.9:51234", true},
		{auth.PeerWitness, "witness.example", "[fd00::9]:51234", true},
		{auth.PeerWitness, "witness.example", "10.0.0.8:51234", false},
		{auth.PeerWitness, "unknown.example", "10.0.0.9:51234", false},
		{auth.PeerWitness, "", "10.0.0.9:51234", false},
		{auth.PeerHead, "", "10.0.0.8:51234", true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/raft", nil)
		r.RemoteAddr = tc.from
		err := s.Verify(r, auth.Peer{Name: "w", Role: tc.role, Host: tc.host})
		if tc.good && err != nil || !tc.good && !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("%s at %s from %q: %v", tc.role, tc.host, tc.from, err)
		}
	}
}

// A name is looked up once in a while, and while that fails, its last known addresses are used.
func TestSourceWithoutResolver(t *testing.T) {
	lookups := 0
	s := &Sources{lookup: func(context.Context, string, string) ([]netip.Addr, error) {
		if lookups++; lookups > 1 {
			return nil, errors.New("the resolver is down")
		}
		return []netip.Addr{netip.MustParseAddr("10.0.0.9")}, nil
	}}
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/raft", nil)
	r.RemoteAddr = "10.0.0.9:51234"
	for range 3 {
		if !s.IsFrom(r, "witness.example") {
			t.Error("the witness is refused")
		}
	}
	if lookups != 1 {
		t.Errorf("%d lookups, want 1", lookups)
	}
	last := s.named["witness.example"]
	last.at = time.Now().Add(-2 * lookupInterval)
	s.named["witness.example"] = last
	if !s.IsFrom(r, "witness.example") || lookups != 2 {
		t.Errorf("the witness is refused, or %d lookups, want 2", lookups)
	}
}
