package platform

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeApt puts an apt-get into PATH that fails a number of times with a message, and then creates the file.
func fakeApt(t *testing.T, failures int, message string) (calls func() int) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
echo >> ` + dir + `/calls
if [ $(wc -l < ` + dir + `/calls) -le ` + string(rune('0'+failures)) + ` ]; then
	echo "E: ` + message + `" >&2
	exit 100
fi
printf content > kmod_30_amd64.deb
`
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		text, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
}

// A failed name lookup or connection does not end a build; a package that does not exist does, at once.
func TestDownloadIsRetried(t *testing.T) {
	sum := sha256.Sum256([]byte("content"))
	digest := hex.EncodeToString(sum[:])
	b := &builder{Options: Options{Arch: "amd64", Logger: slog.New(slog.DiscardHandler)}}
	calls := fakeApt(t, 1, "Failed to fetch http://d.org/kmod.deb  Temporary failure resolving 'd.org'")
	if _, err := b.downloadOne(t.Context(), t.TempDir(), "kmod_30_amd64.deb", digest); err != nil || calls() != 2 {
		t.Errorf("after one failed lookup: %v, %d calls", err, calls())
	}
	calls = fakeApt(t, 9, "Failed to fetch http://d.org/kmod.deb  404  Not Found [IP: 10.0.0.1 80]")
	if _, err := b.downloadOne(t.Context(), t.TempDir(), "kmod_30_amd64.deb", digest); err == nil || calls() != 1 {
		t.Errorf("a package that does not exist: %v, %d calls", err, calls())
	}
}

// The packages of a program's libraries are found at any depth: those of LVM need others.
func TestLibrariesOfLibraries(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
for package; do
	case "$package" in
	lvm2) printf 'lvm2\n  Depends: libsystemd0\n  Depends: lsb-base\n' ;;
	libsystemd0) printf 'libsystemd0\n  Depends: libgcrypt20\n  Depends: libc6\n' ;;
	libgcrypt20) printf 'libgcrypt20\n  Depends: libgpg-error0\n  Depends: libsystemd0\n' ;;
	esac
done
`
	if err := os.WriteFile(filepath.Join(dir, "apt-cache"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	b := &builder{Options: Options{Arch: "amd64", Logger: slog.New(slog.DiscardHandler)}}
	got, err := b.libraryPackages(t.Context())
	if want := "libc6 libgcrypt20 libgpg-error0 libsystemd0"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("%q, %v; want %s", got, err, want)
	}
}
