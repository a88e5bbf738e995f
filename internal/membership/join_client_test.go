package membership

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
)

var somePin = "sha256:" + strings.Repeat("0", 64)

// A head that reaches no other logs that repeatedly, with a hint.
func TestJoinUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Second)
		defer cancel()
		var logged bytes.Buffer
		_, err := SendJoin(ctx, []string{"127.0.0.1:1"}, Token{Trust: somePin}, JoinRequest{},
			slog.New(slog.NewTextHandler(&logged, nil)))
		if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), hintUnreachable) {
			t.Errorf("the error is %v", err)
		}
		info, warn := strings.Count(logged.String(), "level=INFO"), strings.Count(logged.String(), "level=WARN")
		if info != 1 || warn != 3 || strings.Count(logged.String(), hintUnreachable) != warn {
			t.Errorf("%d times INFO and %d times WARN in 95 s:\n%s", info, warn, &logged)
		}
	})
}

// A join at the port of another program fails without retries.
func TestJoinAtWrongPort(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() { // until it is closed
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-other\r\n")) // the test fails without it
			c.Close()
		}
	}()
	for name, addr := range map[string]string{"HTTP": plain.Listener.Addr().String(),
		"something else": other.Addr().String()} {
		_, err := SendJoin(t.Context(), []string{addr}, Token{Trust: somePin}, JoinRequest{},
			slog.New(slog.DiscardHandler))
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "does not speak TLS") ||
			!strings.Contains(err.Error(), "7480") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
