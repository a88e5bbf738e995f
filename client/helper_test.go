package client_test

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// cluster creates heads under one CA.
type cluster struct {
	t     *testing.T
	keys  *auth.Keys
	now   func() time.Time               // the heads' clock
	names []string                       // in the heads' certificates
	conns func(net.Conn, http.ConnState) // called for the heads' connections; may be nil
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t: t, keys: keys, now: time.Now}
}

// server is a head: its URL.
type server struct{ URL string }

// head serves a handler over the cluster's TLS.
func (c *cluster) head(h http.HandlerFunc) server {
	c.t.Helper()
	return c.headAt("127.0.0.1:0", h)
}

func (c *cluster) headAt(addr string, h http.HandlerFunc) server {
	c.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	s := &http.Server{
		Handler:   h,
		TLSConfig: c.keys.CA.ServerCert(func() []string { return c.names }, c.now).TLS(),
		ErrorLog:  log.New(io.Discard, "", 0),
		ConnState: c.conns,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ServeTLS(l, "", "")
	}()
	c.t.Cleanup(func() { s.Close(); <-done })
	return server{"https://" + l.Addr().String()}
}

func (c *cluster) client(retryTimeout time.Duration, endpoints ...string) *client.Client {
	c.t.Helper()
	cl, err := client.New(client.Config{Endpoints: endpoints, Trust: c.keys.CA.Trust(), Token: "token",
		RetryTimeout: retryTimeout})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// closedPort is a URL without a listener. Another program may take a port that was closed.
const closedPort = "https://127.0.0.1:1"

func answer(w http.ResponseWriter, v any) { json.NewEncoder(w).Encode(v) }

func refuse(w http.ResponseWriter, err error) {
	status, p := apitypes.NewProblem(err)
	w.WriteHeader(status)
	answer(w, p)
}

func machine(name, uid string) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Kind: "Machine", Name: name, UID: uid, Revision: 7}}
}

// drop cuts the connection without a response.
func drop() { panic(http.ErrAbortHandler) }

// counter collects values of several requests.
type counter struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (c *counter) add(s string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, s)
	return len(c.list)
}

func (c *counter) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.list...)
}
