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

// Requests that come while a head stops are served, and waited for, or refused.
func TestRequestsBesideADrain(t *testing.T) {
	for range 200 {
		f := &front{}
		var served, refused atomic.Int32
		f.set(&f.api, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { served.Add(1); w.WriteHeader(http.StatusOK) }))
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				w := httptest.NewRecorder()
				f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://head/v1/machines", nil))
				if w.Code == http.StatusServiceUnavailable {
					refused.Add(1)
				}
			})
		}
		f.drain(t.Context())
		before := served.Load()
		asking.Wait()
		if after := served.Load(); after != before || after+refused.Load() != 8 {
			t.Fatalf("served %d, after the drain %d, refused %d", before, after, refused.Load())
		}
	}
}

// A request that does not end in time is left behind, and ends later.
func TestDrainHasAnEnd(t *testing.T) {
	f := &front{}
	if !f.enter() {
		t.Fatal("refused")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.drain(ctx)
	if f.enter() {
		t.Error("it takes new ones")
	}
	f.exit()
}

// A long request of the API takes no time from a machine's download when a head stops: the boot door takes no new ones at once,
// and lets this one end.
func TestDownloadsDrainBesideTheAPI(t *testing.T) {
	s, asked, answer := &Server{front: &front{}}, make(chan struct{}), make(chan struct{})
	s.front.set(&s.front.api, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(asked); <-answer }))
	api := httptest.NewTLSServer(s.front)
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
	resp, err := http.Get(boot.URL) // its beginning is there
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-asked

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- s.drain(ctx, boot.Config) }()
	addr := strings.TrimPrefix(boot.URL, "http://")
	for late := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		conn.Close()
		if time.Now().After(late) {
			t.Error("the boot door takes new downloads")
			break
		}
	}
	close(rest)
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "kernel" {
		t.Errorf("the download: %q, %v", text, err)
	}
	select {
	case err := <-drained:
		t.Errorf("the request was not waited for: %v", err)
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
