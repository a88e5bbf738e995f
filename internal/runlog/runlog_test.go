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
	s, err := runlog.Open(t.TempDir(), 0, nil)
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

// An agent that invents attempts gets no more logs than a run may have. Those that there are go on.
func TestPartsAreBounded(t *testing.T) {
	s := open(t)
	for i := range runlog.MaxParts {
		k := trivet.LogKey{Action: "image", Epoch: int64(1 + i/100), Attempt: 1 + i%100}
		if err := s.Append("blue/w", k, 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append("blue/w", key("one-more"), 0, []byte("x")); !errors.Is(err, trivet.ErrTooLarge) {
		t.Errorf("one more part: %v", err)
	}
	last := trivet.LogKey{Action: "image", Epoch: 1, Attempt: 1}
	if err := errors.Join(s.Append("blue/w", last, 1, []byte("y")), s.Append("blue/v", last, 0, []byte("x"))); err != nil {
		t.Error(err)
	}
}

// Logs leave the reserve of the disk to others.
func TestReserveIsLeft(t *testing.T) {
	s, err := runlog.Open(t.TempDir(), 1<<60, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Append("blue/w", key("a"), 0, []byte("x")); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("written into the reserve: %v", err)
	}
	if parts, err := s.Parts("blue/w"); err != nil || len(parts) > 0 {
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
