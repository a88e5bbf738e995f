package limit

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// serve serves a handler within limits.
func serve(t *testing.T, set *Set, h http.Handler) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(Handler(h))
	_ = srv.Listener.Close()
	srv.Listener = Listen(l, set)
	srv.Config.ConnContext = Context
	srv.Start()
	t.Cleanup(srv.Close)
	return l.Addr().String()
}

// An idle connection above the limit replaces the oldest, and its client learns it; a recognised client stays.
func TestListener(t *testing.T) {
	set := NewSet(Limits{Unknown: 2, PerAddress: 2, Known: 1, KnownPerAddress: 1})
	address := serve(t, set, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Of(r.Context()).Recognise()
		_, _ = io.WriteString(w, "ok")
	}))
	known := &http.Client{Transport: &http.Transport{}}
	get := func() {
		t.Helper()
		resp, err := known.Get("http://" + address)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	get()
	var first net.Conn
	for range 6 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if first == nil {
			first = c
		}
	}
	if _, err := first.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection is open: %v", err)
	}
	get()
	if got := set.Stats(); got.Known != 1 || got.Unknown > 2 {
		t.Errorf("%+v", got)
	}
}

// A file is sent over a limited connection as over any other: by the kernel.
func TestSendfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	var c net.Conn = &conn{}
	if _, ok := c.(io.ReaderFrom); !ok {
		t.Error("a limited connection cannot use sendfile")
	}
	set := NewSet(Limits{Unknown: 2, PerAddress: 2, Known: 1, KnownPerAddress: 1, KeepBusy: true})
	address := serve(t, set, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, file)
	}))
	resp, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}
