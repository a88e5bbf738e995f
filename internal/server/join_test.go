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

// aloneIn is the configuration of a head on loopback.
func aloneIn(dir string) Config {
	return Config{Dir: dir, Version: "v0-test", API: "127.0.0.1:0", Boot: "127.0.0.1:0", Advertise: []string{"127.0.0.1"},
		Log: slog.New(slog.DiscardHandler)}
}

// someToken is one of a cluster that nobody knows.
var someToken = func() string {
	_, plain, _ := auth.NewToken()
	return "sha256:" + strings.Repeat("0", 64) + "." + plain.Reveal()
}()

// Who means to join and leaves something out does not get a second cluster.
func TestNoClusterByMistake(t *testing.T) {
	for what, c := range map[string]struct {
		join  []string
		token string
		says  string
	}{
		"a token alone":       {nil, someToken, "a join token is given but no --join URL"},
		"what is no token":    {nil, "nonsense", "a join token is given but no --join URL"},
		"an empty --join":     {[]string{}, someToken, "--join is empty"},
		"no token either":     {[]string{}, "", "--join is empty"},
		"an empty one of two": {[]string{"https://127.0.0.1:1", ""}, someToken, "--join is empty"},
	} {
		t.Run(what, func(t *testing.T) {
			cfg := aloneIn(filepath.Join(t.TempDir(), "data"))
			cfg.Join, cfg.JoinToken = c.join, c.token
			s, err := New(t.Context(), cfg)
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %v, want %q", err, c.says)
			}
			if left, _ := os.ReadDir(cfg.Dir); len(left) != 0 {
				t.Errorf("it left %v", left)
			}
		})
	}
}

// A head that is one already starts with a token left in its environment.
func TestTokenLeftInTheEnvironment(t *testing.T) {
	cfg := aloneIn(t.TempDir())
	for _, cfg.JoinToken = range []string{"", someToken} {
		s, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatalf("with the token %q: %v", cfg.JoinToken, err)
		}
		s.Close()
	}
}

// A start that is told to stop before it has joined is no success: a script must not go on as if it were.
func TestJoinIsStopped(t *testing.T) {
	cfg := aloneIn(t.TempDir())
	cfg.Join, cfg.JoinToken = []string{"https://127.0.0.1:1"}, someToken
	ctx, stop := context.WithCancel(t.Context())
	cfg.Log = slog.New(slog.NewTextHandler(stopAt{"no place yet", stop}, nil))
	if _, err := New(ctx, cfg); !errors.Is(err, ErrNotJoined) {
		t.Errorf("it says %v", err)
	}
}

// stopAt is a log that calls stop at a word.
type stopAt struct {
	word string
	stop func()
}

func (s stopAt) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.word) {
		s.stop()
	}
	return len(line), nil
}

// A shared address that cannot be had is refused before anything is begun.
func TestVIPIsTriedFirst(t *testing.T) {
	cfg := aloneIn(t.TempDir())
	cfg.VIP, cfg.VIPInterface = "10.98.0.9/24", "nothing0"
	s, err := New(t.Context(), cfg)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, trivet.ErrNotFound) || !strings.Contains(err.Error(), "--vip-interface") {
		t.Errorf("it says %v", err)
	}
	if left, _ := os.ReadDir(cfg.Dir); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
}
