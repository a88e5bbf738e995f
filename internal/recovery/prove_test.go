package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/recovery"
)

// proof returns the proof of a backup of a site.
func (s *site) proof(path string) recovery.Proof {
	s.t.Helper()
	conf, err := s.tables.Sites.Get(trivet.SiteName)
	if err != nil {
		s.t.Fatal(err)
	}
	return recovery.Proof{Backup: at(path), Keys: s.keys.Bundle(), Recipient: conf.Spec.RecoveryKey,
		Temp: filepath.Join(s.t.TempDir(), "proof")}
}

// A head proves a backup by its own keys, also after the store got another key. It reads the contents that are new, and
// leaves nothing.
func TestProve(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	c := s.mustCreate(dir, true)
	next := keyring.New()
	err := s.keys.ChangeRing(s.keysDir, trivet.StoreKey, func(r keyring.Ring) (keyring.Ring, error) {
		return r.With(next).Keep(next.ID(), func(keyring.ID) bool { return true }), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := s.proof(filepath.Join(dir, c.Name))
	for range 2 { // what a former one left does not matter
		r, err := recovery.Prove(t.Context(), p)
		if err != nil || r.Found != 0 || r.Checked != 1 || r.Records["machine"] != 1 {
			t.Errorf("proved %+v, %v", r, err)
		}
		if _, err := os.Stat(p.Temp); !os.IsNotExist(err) {
			t.Errorf("the directory of the proof is left: %v", err)
		}
		if err := os.MkdirAll(filepath.Join(p.Temp, "trivet-verify-1", "store"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// What is wrong with a backup is found without the recovery key.
func TestProveFinds(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	c := s.mustCreate(dir, true)
	path := filepath.Join(dir, c.Name)
	blob := filepath.Join(dir, "blobs", blobName(t, dir))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		change func(p *recovery.Proof)
		want   error // nil: a problem
	}{
		{"a byte of the store", func(*recovery.Proof) { writeFile(t, path, flipped(text, len(text)-100)) }, archive.ErrDamaged},
		{"a byte of the keys", func(*recovery.Proof) {
			writeFile(t, path, flipped(text, strings.Index(string(text), "age-encryption.org")+200))
		}, archive.ErrDamaged},
		{"its end", func(*recovery.Proof) { writeFile(t, path, string(text[:len(text)-10])) }, archive.ErrTruncated},
		{"another cluster's keys", func(p *recovery.Proof) { p.Keys = other.Bundle() }, archive.ErrDamaged},
		{"another recovery key", func(p *recovery.Proof) { p.Recipient = "age1other" }, archive.ErrDamaged},
		{"no space", func(p *recovery.Proof) { p.Reserve = 1 << 60 }, nil},
		{"a blob", func(*recovery.Proof) { writeFile(t, blob, "the content of an imagE") }, nil},
		{"an older blob that is cut off", func(p *recovery.Proof) {
			writeFile(t, blob, "the")
			p.Proven = c.Name
		}, nil},
	} {
		writeFile(t, path, string(text))
		writeFile(t, blob, imageText)
		p := s.proof(path)
		if r, err := recovery.Prove(t.Context(), p); err != nil || r.Found != 0 {
			t.Fatalf("before %s: %+v, %v", test.name, r, err)
		}
		test.change(&p)
		r, err := recovery.Prove(t.Context(), p)
		if err == nil && r.Found == 0 || test.want != nil && !errors.Is(err, test.want) {
			t.Errorf("%s: found %d, %v; want %v", test.name, r.Found, err, test.want)
		}
	}
}

// The contents that a proven backup in the same place has were read then, and are not read again; those of another one,
// or of one that is not there, are.
func TestProveReadsWhatIsNew(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), t.TempDir()
	without := s.mustCreate(dir, false)
	s.touch()
	first := s.mustCreate(dir, true)
	s.touch()
	second := s.mustCreate(dir, true)
	for proven, want := range map[string]int{"": 1, "none.backup": 1, without.Name: 1, first.Name: 0} {
		p := s.proof(filepath.Join(dir, second.Name))
		p.Proven = proven
		if r, err := recovery.Prove(t.Context(), p); err != nil || r.Found != 0 || r.Checked != want {
			t.Errorf("after %q: read %d, %v; want %d", proven, r.Checked, err, want)
		}
	}
	writeFile(t, filepath.Join(dir, "blobs", blobName(t, dir)), "the content of an imagE")
	r, err := recovery.Prove(t.Context(), s.proof(filepath.Join(dir, second.Name)))
	if err != nil || r.Found != 1 || len(r.Bad) != 1 || r.Bad[0] != blobName(t, dir) {
		t.Errorf("a damaged blob: %+v, %v", r, err)
	}
}

// blobName returns the name of the only blob in a directory.
func blobName(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(filepath.Join(dir, "blobs"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0].Name()
}

// flipped returns a text with a bit changed.
func flipped(text []byte, at int) string {
	changed := append([]byte(nil), text...)
	changed[at] ^= 1
	return string(changed)
}

// A directory that must exist is not created, and the space that must be left on its disk is left.
func TestExistingDirectory(t *testing.T) {
	s, dir := newSite(t, trivet.CurrentRelease), filepath.Join(t.TempDir(), "backups")
	to := recovery.Location{Path: dir, Existing: true}
	if _, err := recovery.Create(t.Context(), to, s, true, nil); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("without its directory: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	full := to
	full.Reserve = 1 << 60
	if _, err := recovery.Create(t.Context(), full, s, true, nil); hintOf(err) != "free some space there, or use another directory" {
		t.Errorf("with a reserve: %v", err)
	}
	if _, err := recovery.Create(t.Context(), to, s, true, nil); err != nil {
		t.Error(err)
	}
}
