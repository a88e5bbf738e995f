package recovery_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/store"
)

// A backup whose stream ends anywhere, or whose blob is wrong, or that is cancelled, leaves none, and the next one is
// made.
func TestInterruptedBackup(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	expectNone := func(what string, err error) {
		t.Helper()
		all, listErr := recovery.List(t.Context(), at(dir))
		if err == nil || listErr != nil || len(all) > 0 {
			t.Errorf("%s: %v; listed %+v, %v", what, err, all, listErr)
		}
	}
	for _, s.broken = range []int64{1, 60, 300, 2000, 9000} {
		_, err := s.create(dir, true)
		expectNone("the stream ended", err)
		if !errors.Is(err, trivet.ErrUnavailable) || hintOf(err) == "" {
			t.Errorf("the stream ended after %d bytes: %v", s.broken, err)
		}
	}
	s.broken = 0
	content := s.blobs[s.blob(imageText).Digest]
	content[0] ^= 1
	_, err := s.create(dir, true)
	expectNone("a blob is wrong", err)
	clear(s.blobs)
	_, err = s.create(dir, true)
	expectNone("a blob is on no head", err)
	if !errors.Is(err, trivet.ErrNotFound) || !strings.Contains(hintOf(err), "without --blobs") {
		t.Errorf("a blob is on no head: %v", err)
	}
	s.blob(imageText)
	expectNone("it was cancelled", s.cancelled(dir))
	if err := os.WriteFile(filepath.Join(dir, ".partial-killed"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.mustCreate(dir, true)
	files, _ := filepath.Glob(filepath.Join(dir, ".partial*"))
	blobs, _ := os.ReadDir(filepath.Join(dir, "blobs"))
	if len(files) > 0 || len(blobs) != 1 {
		t.Errorf("left %q, and %d blobs", files, len(blobs))
	}
}

// cancelled makes a backup that is cancelled when the head sends it.
func (s *site) cancelled(dir string) error {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.during = cancel
	defer func() { s.during = nil }()
	_, err := recovery.Create(ctx, at(dir), s, true, nil)
	return err
}

// Without a recovery key there is no backup: its keys would be in plain text, or of no use.
func TestBackupNeedsAKey(t *testing.T) {
	s := newSite(t, trivet.CurrentRelease)
	s.update(func(tx *store.Tx) error {
		return s.tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}})
	})
	_, err := s.create(t.TempDir(), false)
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(hintOf(err), "trivet backup key") {
		t.Errorf("without a recovery key: %v", err)
	}
	if err := recovery.CheckRecipient("age1" + strings.Repeat("q", 58)); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a recipient that is none: %v", err)
	}
}

// One backup at a time is made by a head: each has a copy of the store.
func TestOneBackupAtATime(t *testing.T) {
	s := newSite(t, trivet.CurrentRelease)
	first, err := s.source.Begin(t.Context(), false, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.source.Begin(t.Context(), false, ""); !errors.Is(err, trivet.ErrConflict) || hintOf(err) == "" {
		t.Errorf("a second backup: %v", err)
	}
	first.Close()
	second, err := s.source.Begin(t.Context(), false, "")
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.source.Begin(cancelled, false, ""); err == nil || errors.Is(err, trivet.ErrConflict) {
		t.Errorf("a backup that was cancelled: %v", err)
	}
	third, err := s.source.Begin(t.Context(), false, "")
	if err != nil {
		t.Fatalf("after a backup that failed: %v", err)
	}
	third.Close()
}

// A disk that is too small is reported before contents are copied, and there is no backup.
func TestTooLittleSpace(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	huge := s.blob("x")
	huge.Bytes = 1 << 60
	s.update(func(tx *store.Tx) error { return s.tables.Images.In(tx).Put(image("i2", huge)) })
	_, err := s.create(dir, true)
	if err == nil || !strings.Contains(err.Error(), "MiB needed") || !strings.Contains(hintOf(err), "free some space") {
		t.Errorf("too little space: %v", err)
	}
}
