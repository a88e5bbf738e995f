package recovery_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/recovery"
)

// fakeBackup writes a file that is a backup by its manifest and size, with blobs, and their contents.
// Its time is the earlier, the higher its revision is, as that of a head whose clock is wrong.
func fakeBackup(t *testing.T, dir, cluster string, revision int, blobs ...string) (name string) {
	t.Helper()
	empty := hex.EncodeToString(sha256.New().Sum(nil))
	m := &archive.Manifest{Cluster: cluster, Revision: int64(revision), Contents: true,
		Time: time.Date(2026, 1, 30-revision, 0, 0, 0, 0, time.UTC), Keys: archive.Part{SHA256: empty},
		Store: archive.Part{SHA256: empty}}
	for _, content := range blobs {
		sum := sha256.Sum256([]byte(content))
		m.Blobs = append(m.Blobs, trivet.BlobRef{Digest: "sha256:" + hex.EncodeToString(sum[:]),
			Bytes: int64(len(content))})
		writeFile(t, filepath.Join(dir, "blobs", hex.EncodeToString(sum[:])), content)
	}
	head, err := archive.Header(m, func(string) []byte { return make([]byte, 32) })
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("%s-%d.backup", cluster, revision)
	writeFile(t, filepath.Join(dir, name), string(head))
	return name
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// contents returns the contents of blobs in a directory.
func contents(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	slices.Sort(all)
	return all
}

func prune(t *testing.T, dir string, keep int) recovery.Pruned {
	t.Helper()
	p, err := recovery.Prune(t.Context(), at(dir), keep)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The newest backups of each cluster are kept, with every blob that one of them needs.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	fakeBackup(t, dir, "c1", 1, "old", "shared")
	fakeBackup(t, dir, "c1", 2, "shared")
	fakeBackup(t, dir, "c1", 3, "new")
	fakeBackup(t, dir, "c2", 1, "other")
	writeFile(t, filepath.Join(dir, "blobs", "README"), "not a blob")
	p := prune(t, dir, 2)
	if !slices.Equal(p.Removed, []string{"c1-1.backup"}) || p.Blobs != 1 || p.BlobBytes != 3 {
		t.Errorf("pruned %+v", p)
	}
	if got, want := contents(t, dir), []string{"new", "not a blob", "other", "shared"}; !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if p := prune(t, dir, 2); len(p.Removed) > 0 || len(p.Kept) != 3 || p.Blobs > 0 {
		t.Errorf("pruned again: %+v", p)
	}
}

// A backup that cannot be read may need any blob, and one that lacks a blob counts as none of those that are kept.
func TestPruneWithDamagedBackups(t *testing.T) {
	dir := t.TempDir()
	fakeBackup(t, dir, "c1", 1, "first")
	fakeBackup(t, dir, "c1", 2, "second")
	damaged := fakeBackup(t, dir, "c1", 3, "third")
	sum := sha256.Sum256([]byte("third"))
	if err := os.Remove(filepath.Join(dir, "blobs", hex.EncodeToString(sum[:]))); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "x.backup"), "trivet-backup 1 ")
	p := prune(t, dir, 1)
	if !slices.Equal(p.Removed, []string{"c1-1.backup"}) || !slices.Equal(p.Unreadable, []string{"x.backup"}) ||
		!slices.Contains(p.Kept, damaged) || p.Blobs != 0 {
		t.Errorf("pruned %+v", p)
	}
	if err := os.Remove(filepath.Join(dir, "x.backup")); err != nil {
		t.Fatal(err)
	}
	if p := prune(t, dir, 1); p.Blobs != 1 || len(p.Unreadable) > 0 {
		t.Errorf("pruned without the damaged file: %+v", p)
	}
	if got, want := contents(t, dir), []string{"second"}; !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// The order is that of the revisions.
func TestListIsSorted(t *testing.T) {
	dir := t.TempDir()
	for _, revision := range []int{2, 10, 1} {
		fakeBackup(t, dir, "c1", revision)
	}
	fakeBackup(t, dir, "a1", 1)
	writeFile(t, filepath.Join(dir, ".partial-1.backup"), "x")
	writeFile(t, filepath.Join(dir, "notes.txt"), "x")
	all, err := recovery.List(t.Context(), at(dir))
	var names []string
	for _, e := range all {
		names = append(names, e.Name)
	}
	if got, want := strings.Join(names, " "), "a1-1.backup c1-10.backup c1-2.backup c1-1.backup"; got != want || err != nil {
		t.Errorf("listed %s, %v; want %s", got, err, want)
	}
	if _, err := recovery.List(t.Context(), at(filepath.Join(dir, "none"))); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("no directory: %v", err)
	}
}

// Two commands do not write to a directory at the same time.
func TestDirectoryIsLocked(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	s.during = func() {
		s.during = nil
		if _, err := s.create(dir, false); !errors.Is(err, trivet.ErrConflict) || hintOf(err) == "" {
			t.Errorf("a second backup meanwhile: %v", err)
		}
		if _, err := recovery.Prune(t.Context(), at(dir), 1); !errors.Is(err, trivet.ErrConflict) || hintOf(err) == "" {
			t.Errorf("a prune meanwhile: %v", err)
		}
	}
	s.mustCreate(dir, false)
	prune(t, dir, 1)
	if _, err := recovery.Prune(t.Context(), at(filepath.Join(dir, "none")), 1); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}
