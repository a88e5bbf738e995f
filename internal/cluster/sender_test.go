package cluster_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/storetest"
)

// A member sends messages in its own name only, and none after it was removed: also to a witness, which has no records
// of heads.
func TestVerifySender(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	var added uint64
	for added == 0 { // until the cluster knows its version
		id, _, err := m.Add(t.Context(), "https://127.0.0.1:1")
		if err != nil && !errors.Is(err, trivet.ErrUnavailable) {
			t.Fatal(err)
		}
		added = id
	}
	verify := func(path, from, name string) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
		if from != "" {
			r.Header.Set("X-Server-From", from)
		}
		return m.VerifySender(r, name)
	}
	self, other := cluster.FormatID(m.ID()), cluster.FormatID(added)
	for _, c := range []struct {
		path, from, name string
		refused          bool
	}{
		{"/raft", self, "head0", false},
		{"/raft/stream/message/" + self, self, "head0", false},
		{"/raft", self, "head2", true},
		{"/raft/snapshot", self, "head2", true},
		{"/raft", other, "head1", false}, // it joins, and has not published its name
		{"/raft", "ffff", "head1", true},
		{"/raft", "x", "head1", true},
		{"/raft", "", "head1", true},
		{"/raft/stream/message/" + self, "", "head1", true},
		{"/raft/probing", "", "head1", false},
		{"/version", "", "head1", false},
	} {
		if err := verify(c.path, c.from, c.name); (err != nil) != c.refused ||
			err != nil && !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("%s from %q by %s: %v; refused: %v", c.path, c.from, c.name, err, c.refused)
		}
	}
	if err := m.Remove(t.Context(), added); err != nil {
		t.Fatal(err)
	}
	if err := verify("/raft", other, "head1"); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("a member that was removed: %v", err)
	}
}
