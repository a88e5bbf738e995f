package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet/internal/testhead"
)

// Platform is an installer OS: the paths of its files.
type Platform struct{ Kernel, Initrd string }

// NewPlatform builds an installer OS into dir, with a Debian kernel package. Its /init is the main package at a path
// relative to the test's directory. The program under test builds it: with the race detector, in the process of the
// test, it would take minutes.
func NewPlatform(t *testing.T, dir, kernel, main string) Platform {
	t.Helper()
	skipShort(t)
	binary := filepath.Join(t.TempDir(), "init")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, main)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	run(t, build)
	run(t, exec.CommandContext(t.Context(), testhead.Program(t), "platform", "build", "--out", dir, "--kernel", kernel,
		"--binary", binary))
	return Platform{filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd.img")}
}

// run runs a command, and logs what it printed.
func run(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	t.Logf("%s", out)
}
