package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Requests that arrive while a head stops are served, and drain waits for them, or refused.
func TestRequestsDuringDrain(t *testing.T) {
	for range 200 {
		rt := &router{}
		var served, refused atomic.Int32
		rt.set(&rt.api, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			served.Add(1)
			w.WriteHeader(http.StatusOK)
		}))
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				w := httptest.NewRecorder()
				rt.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://head/v1/machines", nil))
				if w.Code == http.StatusServiceUnavailable {
					refused.Add(1)
				}
			})
		}
		rt.drain(t.Context())
		before := served.Load()
		clients.Wait()
		if after := served.Load(); after != before || after+refused.Load() != 8 {
			t.Fatalf("served %d, after the drain %d, refused %d", before, after, refused.Load())
		}
	}
}

// A request that does not end in time does not delay the drain, and ends later.
func TestDrainTimeout(t *testing.T) {
	rt := &router{}
	if !rt.enter() {
		t.Fatal("refused")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rt.drain(ctx)
	if rt.enter() {
		t.Error("it accepts a new request")
	}
	rt.exit()
}

// A long request to the API does not shorten the time of a machine's download when a head stops: the boot server
// refuses new downloads at once, and lets this one end.
func TestDownloadsDrainBesideAPI(t *testing.T) {
	rt, received, answer := &router{}, make(chan struct{}), make(chan struct{})
	rt.set(&rt.api, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(received); <-answer }))
	api := httptest.NewTLSServer(rt)
	defer api.Close()
	replied := make(chan error, 1)
	go func() {
		resp, err := api.Client().Get(api.URL)
		if err == nil {
			resp.Body.Close()
		}
		replied <- err
	}()
	rest := make(chan struct{})
	boot := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ker")
		_ = http.NewResponseController(w).Flush()
		<-rest
		_, _ = io.WriteString(w, "nel")
	}))
	defer boot.Close()
	resp, err := http.Get(boot.URL) // its first bytes have arrived
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-received

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- drain(ctx, rt, boot.Config) }()
	addr := strings.TrimPrefix(boot.URL, "http://")
	for late := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		conn.Close()
		if time.Now().After(late) {
			t.Error("the boot server accepts new downloads")
			break
		}
	}
	close(rest)
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "kernel" {
		t.Errorf("the download: %q, %v", text, err)
	}
	select {
	case err := <-drained:
		t.Errorf("the drain did not wait for the request: %v", err)
	default:
	}
	close(answer)
	if err := <-replied; err != nil {
		t.Errorf("the request: %v", err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
