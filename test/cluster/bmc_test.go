package cluster

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Two connections from one address and port are two uses of a BMC: a head that is restarted may get a port that it had
// before.
func TestConnectionsAreNumbered(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, connection(r))
	}))
	server.Config.ConnContext = numberConnections()
	server.Start()
	defer server.Close()
	names := map[string]bool{}
	for range 2 {
		transport := &http.Transport{}
		for range 2 {
			resp, err := (&http.Client{Transport: transport}).Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			name, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			names[string(name[len(name)-2:])] = true
		}
		transport.CloseIdleConnections()
	}
	if len(names) != 2 || !names["#1"] || !names["#2"] {
		t.Errorf("two connections with two requests each are %v", names)
	}
}
