package heads_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/heads"
)

// Strangers who send half of a request hold nothing: they are turned away unread, and from the door that is open to them after
// a while.
func TestStrangersDoNotStall(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a head gives up, 5 s")
	}
	s := newSite(t, 1)
	var all sync.WaitGroup
	for _, h2 := range []bool{true, false} {
		cfg := must(client.TLSConfig(s.keys.CA.Pin()))(t)
		if !h2 {
			cfg.NextProtos = []string{"http/1.1"}
		}
		cl := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: h2}}
		t.Cleanup(cl.CloseIdleConnections)
		for path, want := range map[string]int{"greet": 401, "again": 401, "renew": 401, "seen": 401, "blobs/held": 401, "join": 503} {
			all.Go(func() { // until the head answers, or 30 s have passed
				if got, err := s.stall(cl, path); err != nil || got != want {
					t.Errorf("%s, HTTP/2 %v: %d, %v; want %d", path, h2, got, err, want)
				}
			})
		}
	}
	all.Wait()
	w := s.certify(auth.Peer{Name: "head0", Role: auth.PeerHead})
	if _, err := s.caller(w).Renew(t.Context(), "https://"+s.heads[0].addr, heads.Renewal{}); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("a member that sends all: %v", err)
	}
}

// stall begins a request to a door of the first head, and gives the status of the answer.
func (s *site) stall(cl *http.Client, path string) (int, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	rest, _ := io.Pipe() // of which nothing comes
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(`{"id":`), rest), rest}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://%s%s%s", s.heads[0].addr, heads.Prefix, path), body)
	if err != nil {
		return 0, err
	}
	req.ContentLength = 1000
	resp, err := cl.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
