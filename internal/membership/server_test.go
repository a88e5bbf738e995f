package membership

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
	"github.com/trivet-project/trivet/internal/peer"
)

// Clients without a certificate that send half of a request hold nothing: their requests are refused unread, and
// those to the endpoint that is open to them after a while.
func TestUnauthenticatedDoNotStall(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a timeout of 5 s")
	}
	s := newSite(t, 1)
	var all sync.WaitGroup
	for _, h2 := range []bool{true, false} {
		cfg := must(client.TLSConfig(s.keys.CA.Trust()))(t)
		if !h2 {
			cfg.NextProtos = []string{"http/1.1"}
		}
		cl := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: h2}}
		t.Cleanup(cl.CloseIdleConnections)
		for path, want := range map[string]int{
			"ping": 401, newMemberPath: 401, verifyPath: 401, renewPath: 401, "test/full": 401, joinPath: 503} {
			all.Go(func() { // until the head responds, or 30 s have passed
				if got, err := s.stall(cl, path); err != nil || got != want {
					t.Errorf("%s, HTTP/2 %v: %d, %v; want %d", path, h2, got, err, want)
				}
			})
		}
	}
	all.Wait()
	w := s.certify(auth.Peer{Name: "head0", Role: auth.PeerHead})
	if err := s.renew(w, RenewRequest{}); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("a member that sends a whole request: %v", err)
	}
}

// stall sends half of a request to an endpoint of the first head, and returns the status of the response.
func (s *site) stall(cl *http.Client, path string) (int, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	rest, _ := io.Pipe() // of which nothing is written
	body := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(`{"id":`), rest), rest}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		fmt.Sprintf("https://%s%s%s", s.heads[0].addr, peer.Prefix, path), body)
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
