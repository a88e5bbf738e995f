package runlog_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/runlog"
)

func key(action string) trivet.LogKey { return trivet.LogKey{Action: action, Epoch: 7, Attempt: 1} }

func open(t *testing.T) *runlog.Store {
	s, err := runlog.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestRepeatedAndLatePieces(t *testing.T) {
	s := open(t)
	for _, p := range []struct {
		at   int64
		text string
	}{{0, "one "}, {8, "three"}, {0, "one "}, {4, "two "}} {
		if err := s.Append("blue/w", key("image"), p.at, []byte(p.text)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 20)
	n, err := s.Read("blue/w", key("image"), 4, got)
	if err != nil || string(got[:n]) != "two three" {
		t.Errorf("got %q, %v", got[:n], err)
	}
	if n, err := s.Read("blue/w", key("image"), 13, got); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	parts, err := s.Parts("blue/w")
	if err != nil || fmt.Sprint(parts) != "[{{image 7 1} 13}]" {
		t.Errorf("parts %v, %v", parts, err)
	}
}

func TestInvalidNames(t *testing.T) {
	s := open(t)
	for _, bad := range []string{"../x", "", "a/b/c", "../..", "a/..", "..", "/etc"} {
		if err := s.Append(bad, key("a"), 0, []byte("x")); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("workflow %q: %v", bad, err)
		}
		if err := s.Append("blue/w", key(bad), 0, []byte("x")); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("action %q: %v", bad, err)
		}
		if _, err := s.LastWritten(bad); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("written, workflow %q: %v", bad, err)
		}
	}
	if err := s.Append("w", key("a"), 0, []byte("x")); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a workflow without its project: %v", err)
	}
	if _, err := s.Read("blue/w", key("none"), 0, nil); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a log that does not exist: %v", err)
	}
	for _, offset := range []int64{-1, runlog.MaxBytes + 1} {
		if _, err := s.Read("blue/w", key("a"), offset, nil); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("from %d: %v", offset, err)
		}
	}
}

func TestLogIsBounded(t *testing.T) {
	s := open(t)
	if err := s.Append("blue/w", key("a"), runlog.MaxBytes-2, []byte("abcd")); err != nil {
		t.Fatal(err)
	}
	if parts, _ := s.Parts("blue/w"); parts[0].Bytes != runlog.MaxBytes {
		t.Errorf("kept %d bytes, want %d", parts[0].Bytes, runlog.MaxBytes)
	}
}
