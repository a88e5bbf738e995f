package client_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// If a head's clock is years ahead, a client that verifies by the CA's certificate gets a hint about the clocks; one
// that verifies by the pin does not depend on a clock.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.now = func() time.Time { return time.Now().AddDate(3, 0, 0) }
	h := c.head(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"account":"a"}`)) })
	for _, trust := range []string{string(c.keys.CA.PEM()), c.keys.CA.Trust()} {
		cl, err := client.New(client.Config{Endpoints: []string{h.URL}, Trust: trust, RetryTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		_, err = cl.Whoami(t.Context())
		if strings.HasPrefix(trust, "sha256:") {
			if err != nil {
				t.Errorf("by the pin: %v", err)
			}
			continue
		}
		var detailed *trivet.Error
		if !errors.Is(err, trivet.ErrUnauthenticated) || !errors.As(err, &detailed) ||
			!strings.Contains(detailed.Hint, "clock") {
			t.Errorf("by the certificate: %v; want a hint about the clocks", err)
		}
	}
}
