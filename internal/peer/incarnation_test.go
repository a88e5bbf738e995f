package peer

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// A caller of an older incarnation is refused for good, one of a later one fences this head where it is a full head,
// and of two with the same number neither does.
func TestIncarnations(t *testing.T) {
	for _, c := range []struct {
		own, theirs string
		role        auth.PeerRole
		want        error
		fences      bool
	}{
		{"", "", auth.PeerHead, nil, false},
		{"5-a", "5-a", auth.PeerWitness, nil, false},
		{"5-a", "", auth.PeerHead, trivet.ErrForbidden, false},
		{"5-a", "4-z", auth.PeerWitness, trivet.ErrForbidden, false},
		{"", "5-a", auth.PeerHead, trivet.ErrUnavailable, true},
		{"5-a", "10-a", auth.PeerHead, trivet.ErrUnavailable, true},
		{"5-a", "10-a", auth.PeerWitness, trivet.ErrUnavailable, false},
		{"5-a", "5-b", auth.PeerHead, trivet.ErrUnavailable, false},
		{"5-a", "x", auth.PeerHead, trivet.ErrForbidden, false},
		{"5-a", "-1", auth.PeerHead, trivet.ErrForbidden, false},
	} {
		fenced := ""
		s := NewServer(Config{Log: slog.New(slog.DiscardHandler), Incarnation: func() string { return c.own },
			Fence: func(by string) { fenced = by }})
		r := httptest.NewRequest(http.MethodPost, "/", &bytes.Buffer{})
		r.Header.Set(incarnationHeader, c.theirs)
		err := s.checkIncarnation(r, auth.Peer{Name: "head9", Role: c.role})
		if !errors.Is(err, c.want) || c.want == nil && err != nil || (fenced == c.theirs && fenced != "") != c.fences {
			t.Errorf("%q by a %s of %q: %v, fenced by %q", c.own, c.role, c.theirs, err, fenced)
		}
	}
}

// Each request of a client has its incarnation.
func TestClientSendsIncarnation(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get(incarnationHeader)
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	c := &Client{http: server.Client()}
	c.SetIncarnation(func() string { return "7-x" })
	if err := c.Call(t.Context(), server.URL, "ping", struct{}{}, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "7-x" {
		t.Errorf("it sends %q", text)
	}
}
