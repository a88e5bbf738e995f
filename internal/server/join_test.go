package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// testConfig returns the configuration of a head on loopback.
func testConfig(dir string) Config {
	return Config{Dir: dir, Version: "v0-test", API: "127.0.0.1:0", Boot: "127.0.0.1:0",
		Advertise: []string{"127.0.0.1"},
		Log:       slog.New(slog.DiscardHandler)}
}

// someToken is a token of an unknown cluster.
var someToken = func() string {
	_, plain, _ := auth.NewToken()
	return "sha256:" + strings.Repeat("0", 64) + "." + plain.Reveal()
}()

// An incomplete join does not create a second cluster.
func TestIncompleteJoin(t *testing.T) {
	for name, c := range map[string]struct {
		join  []string
		token string
		want  string
	}{
		"token only":             {nil, someToken, "there is a join token but no --join URL"},
		"invalid token":          {nil, "nonsense", "there is a join token but no --join URL"},
		"empty --join":           {[]string{}, someToken, "--join is empty"},
		"no token, empty --join": {[]string{}, "", "--join is empty"},
		"one of two URLs empty":  {[]string{"https://127.0.0.1:1", ""}, someToken, "--join is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(filepath.Join(t.TempDir(), "data"))
			cfg.Join, cfg.JoinToken = c.join, c.token
			s, err := New(t.Context(), cfg)
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if left, _ := os.ReadDir(cfg.Dir); len(left) != 0 {
				t.Errorf("files %v remain", left)
			}
		})
	}
}

// A head of a cluster starts also with a token in its environment.
func TestTokenInEnvironment(t *testing.T) {
	cfg := testConfig(t.TempDir())
	for _, cfg.JoinToken = range []string{"", someToken} {
		s, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatalf("with the token %q: %v", cfg.JoinToken, err)
		}
		s.Close()
	}
}

// A start that is stopped before it has joined fails: a script must not continue as if it had joined.
func TestJoinIsStopped(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Join, cfg.JoinToken = []string{"https://127.0.0.1:1"}, someToken
	ctx, stop := context.WithCancel(t.Context())
	cfg.Log = slog.New(slog.NewTextHandler(stopAt{"not joined yet", stop}, nil))
	if _, err := New(ctx, cfg); !errors.Is(err, ErrNotJoined) {
		t.Errorf("error %v", err)
	}
}

// stopAt is a log that calls stop at a line with a text.
type stopAt struct {
	text string
	stop func()
}

func (s stopAt) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.text) {
		s.stop()
	}
	return len(line), nil
}

// A shared address that cannot be used is refused before anything is written.
func TestVIPIsCheckedFirst(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.VIP, cfg.VIPInterface = "10.98.0.9/24", "nothing0"
	s, err := New(t.Context(), cfg)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, trivet.ErrNotFound) || !strings.Contains(err.Error(), "--vip-interface") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(cfg.Dir); len(left) != 0 {
		t.Errorf("files %v remain", left)
	}
}
