package heads

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

// A head that finds nobody says so again and again, and what to do.
func TestJoinWhereNobodyIs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody is there from now on
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Second)
		defer cancel()
		var said bytes.Buffer
		_, err := Join(ctx, []string{l.Addr().String()}, Token{Pin: somePin}, Ask{}, slog.New(slog.NewTextHandler(&said, nil)))
		if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), hintReach) {
			t.Errorf("at the end it says %v", err)
		}
		info, warn := strings.Count(said.String(), "level=INFO"), strings.Count(said.String(), "level=WARN")
		if info != 1 || warn != 3 || strings.Count(said.String(), hintReach) != warn {
			t.Errorf("%d times INFO and %d times WARN in 95 s:\n%s", info, warn, &said)
		}
	})
}

// A wrong port does not become right by waiting.
func TestJoinAtAWrongPort(t *testing.T) {
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
			_, _ = c.Write([]byte("SSH-2.0-none of yours\r\n")) // the test sees that it is missing
			c.Close()
		}
	}()
	for what, at := range map[string]string{"HTTP": plain.Listener.Addr().String(), "something else": other.Addr().String()} {
		_, err := Join(t.Context(), []string{at}, Token{Pin: somePin}, Ask{}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "does not speak TLS") || !strings.Contains(err.Error(), "7480") {
			t.Errorf("%s: it says %v", what, err)
		}
	}
}
