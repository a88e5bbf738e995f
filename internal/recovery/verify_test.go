package recovery_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/store"
)

// A backup has every record and the contents of blobs; it is verified without the cluster.
func TestBackupIsVerified(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	c := s.mustCreate(dir, true)
	if c.Blobs != 1 || c.Copied != 1 || c.CopiedBytes != int64(len(imageText)) || c.State != recovery.Complete {
		t.Errorf("created %+v", c)
	}
	s.update(func(tx *store.Tx) error { return s.tables.Machines.In(tx).Delete("m1") })
	r, err := s.verify(filepath.Join(dir, c.Name), s.key)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"site": 1, "image": 1, "machine": 1, "event": 1}
	if r.Found != 0 || !maps.Equal(r.Records, want) || r.Checked != 1 || r.Head.Name != "head0" || r.Values < 4 {
		t.Errorf("verified %+v; want records %v", r, want)
	}
	if again := s.mustCreate(dir, true); again.Copied != 0 || again.Blobs != 1 || again.Revision <= c.Revision {
		t.Errorf("the next backup: %+v", again)
	}
	raw, err := os.ReadFile(filepath.Join(dir, c.Name))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range s.keys.Bundle() {
		if name != "ca.pem" && bytes.Contains(raw, text[:40]) {
			t.Errorf("%s is in the backup in plain text", name)
		}
	}
}

// While the key of the store is replaced, values are encrypted with two: a backup has both, also one that was made for
// an earlier recovery key.
func TestBackupDuringRotation(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	next := keyring.New()
	err := s.keys.ChangeRing(s.keysDir, trivet.StoreKey, func(r keyring.Ring) (keyring.Ring, error) {
		return r.With(next), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.update(func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
	s.update(func(tx *store.Tx) error {
		return s.tables.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: "m2"}})
	})
	first := s.mustCreate(dir, false)
	later, recipient := newKey(t, "c1", s.keys.CA.Trust())
	s.setRecipient(recipient)
	second := s.mustCreate(dir, false)
	for name, key := range map[string]*recovery.Key{first.Name: s.key, second.Name: later} {
		r, err := s.verify(filepath.Join(dir, name), key)
		if err != nil || r.Found != 0 || r.Records["machine"] != 2 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := s.verify(filepath.Join(dir, second.Name), s.key); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("opened by the earlier recovery key: %v", err)
	}
}

// What is changed or cut off, in any part of the file, makes a verification fail, with what to do next.
func TestChangedBackup(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	path := filepath.Join(dir, s.mustCreate(dir, false).Name)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest := bytes.IndexByte(whole, '\n') + 1
	keys := bytes.Index(whole, []byte("age-encryption.org"))
	stored := bytes.Index(whole[keys+100:], []byte{0xed, 0xda, 0x0c, 0xed}) + keys + 100 - 16 // bbolt's magic number
	if manifest < 100 || keys < manifest || stored < keys {
		t.Fatalf("the parts begin at %d, %d, %d", manifest, keys, stored)
	}
	for name, pos := range map[string]int{"the MAC": manifest - 5, "the manifest": manifest + 30,
		"the header of the keys": keys + 30, "the keys": stored - 20, "the store": stored + 5000, "the end": len(whole) - 1} {
		changed := bytes.Clone(whole)
		changed[pos] ^= 4
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.verify(path, s.key); !errors.Is(err, archive.ErrDamaged) || hintOf(err) == "" {
			t.Errorf("%s was changed: %v", name, err)
		}
		if err := os.WriteFile(path, whole[:pos], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.verify(path, s.key); !errors.Is(err, archive.ErrTruncated) || hintOf(err) == "" {
			t.Errorf("the file ends in %s: %v", name, err)
		}
		if all, err := recovery.List(t.Context(), at(dir)); err != nil || len(all) != 1 ||
			all[0].State != recovery.Damaged {
			t.Errorf("the file ends in %s, and is listed as %+v, %v", name, all, err)
		}
	}
}

func TestWrongKeys(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	path := filepath.Join(dir, s.mustCreate(dir, false).Name)
	other, _ := newKey(t, "c1", s.keys.CA.Trust())
	foreign, _ := newKey(t, "c2", s.keys.CA.Trust())
	for text, key := range map[string]*recovery.Key{"it needs the recovery key age1": other,
		"it is of cluster c1, and the key of cluster c2": foreign} {
		if _, err := s.verify(path, key); err == nil || !strings.Contains(err.Error(), text) || hintOf(err) == "" {
			t.Errorf("want %q: %v", text, err)
		}
	}
	bad := filepath.Join(dir, "bad.key")
	if err := os.WriteFile(bad, []byte("AGE-SECRET-KEY-1QQQ"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.ReadKey(bad); !errors.Is(err, trivet.ErrInvalid) || strings.Contains(err.Error(), "QQQ") {
		t.Errorf("a key that is none: %v", err)
	}
}

// A party that knows the public part of the recovery key can make a backup of a cluster of its own, and name it as it
// likes. That one has the keys of another CA.
func TestForgedBackup(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	own, err := auth.Init(filepath.Join(dir, "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	key, recipient := newKey(t, "c1", own.CA.Trust())
	s.setRecipient(recipient)
	path := filepath.Join(dir, s.mustCreate(dir, false).Name)
	if _, err := s.verify(path, key); err == nil || !strings.Contains(err.Error(), "the recovery key names") {
		t.Errorf("a backup with the keys of another CA: %v", err)
	}
}

// A backup whose records use what this version does not know is refused.
func TestNewerRelease(t *testing.T) {
	s, dir := newSite(t, "99.1"), t.TempDir()
	path := filepath.Join(dir, s.mustCreate(dir, false).Name)
	if _, err := s.verify(path, s.key); !errors.Is(err, archive.ErrNewer) || hintOf(err) == "" {
		t.Errorf("a newer release: %v", err)
	}
}

// What a restored cluster would lack is found: a value that does not authenticate, references that do not hold,
// contents that are wrong.
func TestProblemsAreFound(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	if _, err := s.member.Client().Put(t.Context(), "/trivet/machine/m9", "forged"); err != nil {
		t.Fatal(err)
	}
	run := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w1"}}
	run.Spec.Machine = "gone"
	machine := &trivet.Machine{Meta: trivet.Meta{Name: "m2"}}
	machine.Status.Workflow = "w1"
	s.update(func(tx *store.Tx) error {
		return errors.Join(s.tables.Workflows.In(tx).Put(run), s.tables.Machines.In(tx).Put(machine))
	})
	c := s.mustCreate(dir, true)
	for digest := range s.blobs {
		path := filepath.Join(dir, "blobs", strings.TrimPrefix(digest, "sha256:"))
		if err := os.WriteFile(path, []byte(strings.ToUpper(imageText)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.verify(filepath.Join(dir, c.Name), s.key)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"machine/m9: the stored value does not authenticate",
		"workflow w1: spec.machine refers to machine gone, which is missing",
		"machine m2: its run w1 is one of machine gone", "the content of blob sha256:"} {
		if !strings.Contains(strings.Join(r.Problems, "\n"), want) {
			t.Errorf("not found: %s", want)
		}
	}
	if r.Found != len(r.Problems) || r.Checked != 0 {
		t.Errorf("%d problems, %d contents read:\n%s", r.Found, r.Checked, strings.Join(r.Problems, "\n"))
	}
}
