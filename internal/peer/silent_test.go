package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A head is silent where nothing was heard of it: a response is not silence, nor is a certificate that is not accepted.
func TestIsSilent(t *testing.T) {
	refusing := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this head is starting", http.StatusServiceUnavailable)
	}))
	defer refusing.Close()
	refusing.Config.ErrorLog = log.New(io.Discard, "", 0)
	starting := httptest.NewUnstartedServer(http.NotFoundHandler())
	starting.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, errors.New("there is none yet")
	}}
	starting.Config.ErrorLog = refusing.Config.ErrorLog
	starting.StartTLS()
	defer starting.Close()
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	for name, c := range map[string]struct {
		client *http.Client
		url    string
		silent bool
	}{
		"a response that refuses":            {refusing.Client(), refusing.URL, false},
		"a certificate that is not accepted": {http.DefaultClient, refusing.URL, false},
		"no certificate yet":                 {http.DefaultClient, starting.URL, false},
		"no process":                         {http.DefaultClient, "https://127.0.0.1:1", true},
		"a process that hangs":               {http.DefaultClient, "https://" + hanging.Addr().String(), true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := Call(ctx, c.client, c.url, "ping", struct{}{}, &struct{}{})
		cancel()
		if err == nil || IsSilent(err) != c.silent {
			t.Errorf("%s: %v, silent %t", name, err, IsSilent(err))
		}
	}
	if IsSilent(nil) {
		t.Error("no error is silence")
	}
}
