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
