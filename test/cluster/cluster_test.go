package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// patience bounds every wait for something that must come.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	var err error
	status := 1
	switch {
	case !Inside():
		status, err = Enter()
	default:
		if err = Settle(); err == nil {
			status = m.Run()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TRIVET")
	if path == "" {
		t.Fatal("TRIVET is not set: run make test, or make build && TRIVET=$PWD/bin/trivet go test ./test/cluster")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newHeads starts a site of so many heads.
func newHeads(t *testing.T, h *history, n int) *site {
	t.Helper()
	s, err := newSite(program(t), t.TempDir(), h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := s.growTo(ctx, n); err != nil {
		t.Fatal(err)
	}
	return s
}

// within runs a step that must come to an end.
func within(t *testing.T, what string, step func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := step(ctx); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestThreeHeadsComeBack(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three heads")
	}
	h := newHistory(0)
	s := newHeads(t, h, 3)
	within(t, "kill every head, the leader last", func(ctx context.Context) error {
		for range s.heads {
			l, err := s.leader(ctx)
			if err != nil {
				return err
			}
			l.kill()
			if err := errors.Join(l.start(""), s.ready(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
	if len(h.Deaths) > 0 {
		t.Error(h.Deaths)
	}
}
