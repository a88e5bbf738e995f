package head_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// createPage creates records for a whole page of a list, and returns its path.
func (h *head) createPage() (path string) {
	h.Helper()
	cl := h.Client(timeout)
	if _, err := client.Of[trivet.Template](cl).Create(h.Context(), &trivet.Template{
		Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "nothing", Use: "noop"}}}}); err != nil {
		h.Fatal(err)
	}
	for i := range 65 {
		if _, err := client.Of[trivet.Provision](cl).Create(h.Context(), &trivet.Provision{
			Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("p", i)},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"pool": "none"},
				UserData: "#cloud-config\n#" + strings.Repeat("x", 64<<10-100)}}); err != nil {
			h.Fatal(err)
		}
	}
	return "/v1/projects/default/provisions?limit=1000"
}

// Many clients that request a page and do not read it cost the head little memory, and it serves others.
func TestUnreadPages(t *testing.T) {
	h := newHead(t)
	path := h.createPage()
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, h.Credential().Token)
	attack(t, 100, h.secure("http/1.1"), []byte(request))
	h.mustServe()
	h.mustBeUnharmed()
	if peak := h.peak(); peak > 250<<20 {
		t.Errorf("the head had %d MiB", peak>>20)
	}
}

// stalledConn is a connection whose client stops reading.
type stalledConn struct {
	net.Conn
	stalled <-chan struct{}
	closed  chan struct{}
	close   func() error
}

func (c *stalledConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.stalled:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *stalledConn) Close() error { return c.close() }

// A connection of HTTP/2 whose client reads nothing is ended, with all requests on it: flow control permits them to
// send more than the connection accepts.
func TestUnreadConnection(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	path := h.createPage()
	trust, err := client.TLSConfig(h.Credential().Trust)
	if err != nil {
		t.Fatal(err)
	}
	stalled := make(chan struct{})
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			s := &stalledConn{Conn: conn, stalled: stalled, closed: make(chan struct{})}
			s.close = sync.OnceValue(func() error {
				close(s.closed)
				return conn.Close()
			})
			return s, nil
		}}}
	get := func(path string) error {
		resp, err := c.Do(h.request(t.Context(), "GET", path, nil))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	const listed = `trivet_api_requests_total{route="GET /v1/projects/{project}/provisions",status="200"} `
	const unread = `trivet_api_unread_responses_total{route="GET /v1/projects/{project}/provisions"} `
	if err := get(path); err != nil {
		t.Fatal(err)
	}
	close(stalled)
	const requests = 8
	for range requests {
		go func() { _ = get(path) }() // ends with the test
	}
	for late := time.Now().Add(4 * timeout); h.metric(t, listed) < requests+1; time.Sleep(time.Second) {
		if time.Now().After(late) {
			t.Fatalf("of %d lists that no one reads %d were ended", requests, h.metric(t, listed)-1)
		}
	}
	if h.metric(t, unread) == 0 {
		t.Error("no response is counted as unread")
	}
	c.CloseIdleConnections()
	h.mustServe()
	h.mustBeUnharmed()
}
