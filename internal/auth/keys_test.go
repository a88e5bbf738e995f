package auth

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

func newKeys(t testing.TB, cluster string) *Keys {
	t.Helper()
	keys, err := Init(filepath.Join(t.TempDir(), "keys"), cluster)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestKeysSurviveTheDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "keys")
	made, err := Init(dir, "c1")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made.Bundle(), loaded.Bundle()); diff != "" {
		t.Error(diff)
	}
	if loaded.CA.Cluster() != "c1" || loaded.CA.Trust() != made.CA.Trust() {
		t.Errorf("loaded cluster %q, pin %s", loaded.CA.Cluster(), loaded.CA.Trust())
	}
	for name, want := range map[string]fs.FileMode{".": 0o700, fileCACert: 0o644, fileCAKey: 0o600, fileBoot: 0o600,
		fileBootCA: 0o600, fileSeal: 0o600, fileStore: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, err %v; want %v", name, info.Mode().Perm(), err, want)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("left beside the keys: %v", left)
	}
}

func TestInitRefusesASecondStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	first, err := Init(dir, "c1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Init(dir, "c2"); !errors.Is(err, trivet.ErrExists) {
		t.Errorf("second Init: %v; want ErrExists", err)
	}
	if again, err := Load(dir); err != nil || again.CA.Trust() != first.CA.Trust() {
		t.Errorf("first keys after the second Init: %v", err)
	}
}

func TestInstallCopiesTheKeys(t *testing.T) {
	a := newKeys(t, "c1")
	b, err := Install(filepath.Join(t.TempDir(), "keys"), a.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := a.Sealer.Seal(FieldRef{Kind: "Secret", Name: "bmc"}, "hunter2", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.Sealer.Open(FieldRef{Kind: "Secret", Name: "bmc"}, sealed); err != nil ||
		got.Reveal() != "hunter2" {
		t.Errorf("opened by the other head: %q, %v", got.Reveal(), err)
	}
}

func TestLoadRefuses(t *testing.T) {
	other := newKeys(t, "c2").Bundle()
	cases := map[string]struct {
		spoil func(dir string) error
		want  error
	}{
		"no keys": {func(dir string) error { return os.RemoveAll(dir) }, trivet.ErrNotFound},
		"a file missing": {func(dir string) error { return os.Remove(filepath.Join(dir, fileBoot)) },
			trivet.ErrNotFound},
		"key others can read": {func(dir string) error { return os.Chmod(filepath.Join(dir, fileCAKey), 0o644) },
			trivet.ErrInvalid},
		"another CA's key":      {writeKey(fileCAKey, other[fileCAKey]), trivet.ErrInvalid},
		"truncated CA":          {writeKey(fileCACert, other[fileCACert][:100]), trivet.ErrInvalid},
		"short boot key":        {writeKey(fileBoot, []byte("abcd\n")), trivet.ErrInvalid},
		"a boot key twice":      {writeKey(fileBoot, bytes.Repeat(other[fileBoot], 2)), trivet.ErrInvalid},
		"three CAs":             {writeKey(fileCACert, bytes.Repeat(other[fileCACert], 3)), trivet.ErrInvalid},
		"a changed sealing key": {changeDigit(fileSeal), trivet.ErrInvalid},
		"a changed store key":   {changeDigit(fileStore), trivet.ErrInvalid},
		"no sealing key":        {writeKey(fileSeal, nil), trivet.ErrInvalid},
		"huge sealing key":      {writeKey(fileSeal, make([]byte, 1<<20)), trivet.ErrTooLarge},
		"CA that is not a CA":   {writeKey(fileCACert, []byte(notACA(t))), trivet.ErrInvalid},
		"private key as a CA":   {writeKey(fileCACert, other[fileCAKey]), trivet.ErrInvalid},
		"certificate as a key":  {writeKey(fileCAKey, other[fileCACert]), trivet.ErrInvalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "keys")
			if _, err := Init(dir, "c1"); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(dir); !errors.Is(err, c.want) {
				t.Errorf("Load: %v; want %v", err, c.want)
			}
		})
	}
}

// changeDigit changes one digit of a key, and not its ID.
func changeDigit(name string) func(string) error {
	return func(dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		text[20] = '0' + (text[20]-'0'+1)%10
		return os.WriteFile(filepath.Join(dir, name), text, 0o600)
	}
}

func writeKey(name string, data []byte) func(string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), data, 0o600) }
}

func TestInitRefusesBadClusterID(t *testing.T) {
	for _, id := range []string{"", "Big", "a b", strings.Repeat("x", 200)} {
		if _, err := Init(filepath.Join(t.TempDir(), "keys"), id); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("Init(%q): %v; want ErrInvalid", id, err)
		}
	}
}

// The keys of the store are replaced on the disk first, and then in use. What cannot be written is not used.
func TestChangeRing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	keys, err := Init(dir, "c1")
	if err != nil {
		t.Fatal(err)
	}
	old, next := keys.Ring(trivet.StoreKey).First().ID(), keyring.New()
	add := func(r keyring.Ring) (keyring.Ring, error) { return r.With(next, next), nil }
	err = keys.ChangeRing(filepath.Join(dir, "missing"), trivet.StoreKey, add)
	if !errors.Is(err, trivet.ErrUnavailable) ||
		keys.Values().Has(next.ID()) || len(keys.Ring(trivet.StoreKey).IDs()) != 1 {
		t.Errorf("a key that is not on the disk: %v", err)
	}
	use := func(r keyring.Ring) (keyring.Ring, error) { return r.Keep(next.ID(), nil), nil }
	only := func(r keyring.Ring) (keyring.Ring, error) {
		return r.Keep(next.ID(), func(keyring.ID) bool { return false }), nil
	}
	box := keys.Values().Seal([]byte("text"), nil)
	for _, c := range []struct {
		change func(keyring.Ring) (keyring.Ring, error)
		want   []string
	}{
		{only, []string{old.String()}}, // a key that it does not have
		{add, []string{old.String(), next.ID().String()}},
		{use, []string{next.ID().String(), old.String()}},
		{only, []string{next.ID().String()}},
	} {
		if err := keys.ChangeRing(dir, trivet.StoreKey, c.change); err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(c.want, loaded.Ring(trivet.StoreKey).IDs()) + cmp.Diff(loaded.Bundle(), keys.Bundle())
		if diff != "" {
			t.Error(diff)
		}
		_, _, err = keys.Values().Open(box, nil)
		if (err == nil) != slices.Contains(c.want, old.String()) || keys.Values().First().String() != c.want[0] {
			t.Errorf("with %v: %v", c.want, err)
		}
	}
	var many []keyring.Key
	for range keyring.MaxKeys {
		many = append(many, keyring.New())
	}
	tooMany := func(r keyring.Ring) (keyring.Ring, error) { return r.With(many...), nil }
	if err := keys.ChangeRing(dir, trivet.StoreKey, tooMany); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("too many keys: %v", err)
	}
}
