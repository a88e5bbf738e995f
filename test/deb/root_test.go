package deb_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// rootArgs are the arguments of mmdebstrap for the clean root: what Debian cannot be without, systemd, and what the
// package recommends.
var rootArgs = []string{
	"--mode=root", "--variant=minbase", "--include=systemd-sysv,ipxe",
	"--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Retries 5",
	`--customize-hook=systemctl --root="$1" mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer` +
		` systemd-networkd.service systemd-logind.service`,
	"bookworm",
}

// cleanRoot returns the directory of a Debian that no test writes to, made now or earlier.
func cleanRoot(t *testing.T) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256([]byte(strings.Join(rootArgs, "\n")))
	dir := filepath.Join(base, "trivet-test", fmt.Sprintf("root-%x", key[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	t.Log("mmdebstrap: some minutes, once")
	out, err := exec.CommandContext(t.Context(), "mmdebstrap", append(rootArgs, tmp)...).CombinedOutput()
	if err != nil {
		t.Fatalf("mmdebstrap: %v: %s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, fs.ErrExist) { // another test was faster
		t.Fatal(err)
	}
	return dir
}
