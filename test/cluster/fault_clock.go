package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet/internal/testhead"
)

// A program that is built here has a clock of its own: Go's time.Now is replaced while it is built (go build
// -overlay). The machine has one clock for all, and Go programs read it in ways that cannot be intercepted from
// outside. The released program has nothing of this.

// clockEnv names the file with the seconds by which such a program's clock is ahead. Without one it is right.
const clockEnv = "TRIVET_TEST_CLOCK"

// readsClock is the line of Go's time.Now after which the seconds can be changed.
const readsClock = "\tsec, nsec, mono := runtimeNow()\n"

// buildWithClock builds the program with a clock of its own.
func buildWithClock(ctx context.Context, path, version string) error {
	dir, err := os.MkdirTemp("", "clock")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := clockOverlay(ctx, dir)
	if err != nil {
		return err
	}
	return build(ctx, path, version, "-overlay="+overlay)
}

// build builds the program at a path as the Makefile does, with more flags.
func build(ctx context.Context, path, version string, flags ...string) error {
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w -X main.version=" + version, "-o", path}, flags...)
	c := exec.CommandContext(ctx, "go", append(args, "./cmd/trivet")...)
	c.Dir, c.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", c, err, out)
	}
	return nil
}

// clockOverlay writes the file for go build's -overlay, and what it refers to, into a directory.
func clockOverlay(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	now, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return "", err
	}
	if bytes.Count(now, []byte(readsClock)) != 1 {
		return "", fmt.Errorf("time.Now of this Go version does not contain %q: adapt readsClock", readsClock)
	}
	changed := filepath.Join(dir, "time.go")
	now = bytes.Replace(now, []byte(readsClock), []byte(readsClock+"\tsec += Ahead.Load()\n"), 1)
	err = os.WriteFile(changed, now, 0o600)
	own, errOwn := filepath.Abs("testdata/clock")
	program, errProgram := filepath.Abs("../../cmd/trivet")
	text, errText := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(library, "time.go"):  changed,
		filepath.Join(library, "ahead.go"): filepath.Join(own, "ahead.go"),
		filepath.Join(program, "clock.go"): filepath.Join(own, "follow.go"),
	}})
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(err, errOwn, errProgram, errText, os.WriteFile(overlay, text, 0o600))
}

func (h *head) clockFile() string { return h.site.path(h.port + ".clock") }

// setClock sets a head's clock off by minutes, once also before it starts, and then right again.
func setClock(ctx context.Context, t *trial) (string, func() error, error) {
	h, off := t.any(), time.Duration(2+t.dice.IntN(28))*time.Minute
	if t.dice.IntN(2) == 0 {
		off = -off
	}
	what := fmt.Sprint(h.port, " ", off)
	err := h.turnClock(ctx, off)
	if t.dice.IntN(2) == 0 {
		what += " and restarted"
		err = errors.Join(err, h.stop(), h.start(""))
	}
	return what, func() error { return h.turnClock(ctx, 0) }, err
}

// turnClock makes a head's clock differ from the machine's, and verifies that it does.
func (h *head) turnClock(ctx context.Context, ahead time.Duration) error {
	if err := renameio.WriteFile(h.clockFile(), []byte(fmt.Sprint(int64(ahead.Seconds()))), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	return testhead.Eventually(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.api()+"/livez", nil)
		if err != nil {
			return err
		}
		resp, err := testhead.Unverified.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if off := time.Until(date) - ahead; err == nil && off.Abs() > 5*time.Second {
			err = fmt.Errorf("%s has a clock that is off by %s, not by %s: is its program built for that?",
				h.port, time.Until(date), ahead)
		}
		return err
	})
}
