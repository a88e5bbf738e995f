package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// A connection that breaks before there is a response, and a server that is overloaded, are tried again. A missing file
// is not.
func TestURLIsRetried(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := requests.Add(1); {
		case r.URL.Path == "/missing":
			http.NotFound(w, r)
		case n == 1:
			panic(http.ErrAbortHandler)
		case n == 2:
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, "content")
		}
	}))
	defer server.Close()
	s, _, err := openURL(t.Context(), server.URL+"/image")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(s)
	if err != nil || string(text) != "content" || requests.Load() != 3 {
		t.Errorf("%q, %v after %d requests", text, err, requests.Load())
	}
	if _, _, err := openURL(t.Context(), server.URL+"/missing"); err == nil || requests.Load() != 4 {
		t.Errorf("a missing file: %v after %d requests", err, requests.Load())
	}
}
