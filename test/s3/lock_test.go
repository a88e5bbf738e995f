package s3_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bucket"
)

// While a process has the lock, another one is refused; of many that begin at the same time, at most one has it.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open("site")
	first := lock(t, b)
	began := time.Now()
	_, err := b.Lock(t.Context(), isAny)
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(hintOf(err), "wait until") ||
		time.Since(began) > 30*time.Second {
		t.Errorf("locked twice, after %s: %v", time.Since(began), err)
	}
	other := lock(t, s.open("site2"))
	other.Close()
	first.Close()

	var mu sync.Mutex
	var group sync.WaitGroup
	got := 0
	for range 6 {
		group.Go(func() {
			if _, err := s.open("site").Lock(t.Context(), isAny); err == nil { // it keeps it
				mu.Lock()
				defer mu.Unlock()
				got++
			} else if !errors.Is(err, trivet.ErrConflict) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got != 1 {
		t.Errorf("%d of 6 have the lock", got)
	}
}

// The lock of a process that was killed is taken over, and one that was only paused writes and removes nothing then.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open("site")
	paused := lock(t, b)
	u := paused.Create(t.Context(), "x", 3)
	if _, err := u.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "site", ".locks")); err != nil { // as the one that took over
		t.Fatal(err)
	}
	second := lock(t, b)
	for _, err := range []error{u.Publish(t.Context(), true), paused.Remove(t.Context(), []string{"y"})} {
		if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(hintOf(err), "run the command again") {
			t.Errorf("after another one took over: %v", err)
		}
	}
	if list, err := b.List(t.Context(), ""); err != nil || len(list) > 0 {
		t.Errorf("listed %v, %v", list, err)
	}
	if err := put(t.Context(), second, "y", []byte("y"), false); err != nil {
		t.Errorf("the one that took over: %v", err)
	}
	second.Close()

	killed := filepath.Join(s.dir, "site", ".locks", "0123")
	if err := os.MkdirAll(filepath.Dir(killed), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(killed, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.Lock(short, isAny); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("taken over too early: %v", err)
	}
	third, err := b.Lock(t.Context(), isAny)
	if err != nil {
		t.Fatalf("after one that was killed: %v", err)
	}
	third.Close()
}

// What cannot be a bucket, an endpoint or a credential is refused, without the secrets that it may have.
func TestRefusedLocations(t *testing.T) {
	for _, location := range []string{"s3://", "s3:///x", "s3://B_C/x", "s3://ab", "s3://bucket//x", "s3://bucket/../x",
		"s3://bucket/x/./y", "s3://bucket/a\nb", "s3://bucket/" + strings.Repeat("x", 513), "/srv/backup"} {
		if _, _, err := bucket.Parse(location); !errors.Is(err, trivet.ErrInvalid) || hintOf(err) == "" {
			t.Errorf("%q: %v", location, err)
		}
	}
	for _, endpoint := range []string{"s3.example.com", "ftp://x", "https://user:hunter2@x", "https://x/path",
		"https://x?y", "https://", "::"} {
		_, err := bucket.Open("s3://bucket/x", bucket.Config{Endpoint: endpoint})
		if !errors.Is(err, trivet.ErrInvalid) || hintOf(err) == "" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
}
