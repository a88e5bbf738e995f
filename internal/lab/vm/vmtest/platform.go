package vmtest

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet/internal/platform"
	"github.com/trivet-project/trivet/internal/testhead"
)

// Platform is an installer OS: the paths of its files.
type Platform struct{ Kernel, Initrd string }

// WithAgent returns the platform with another agent, as heads write it after an upgrade.
func (p Platform) WithAgent(t *testing.T, main string) Platform {
	t.Helper()
	built, err := platform.ReadBuilt(filepath.Dir(p.Initrd))
	if err != nil {
		t.Fatal(err)
	}
	binary := agent(t, main)
	var files [3]*os.File
	for i, open := range []func() (*os.File, error){
		func() (*os.File, error) { return os.Open(p.Initrd) },
		func() (*os.File, error) { return os.Open(binary) },
		func() (*os.File, error) { return os.Create(p.Initrd + ".new") },
	} {
		if files[i], err = open(); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	info, err := files[1].Stat()
	if err == nil {
		err = platform.WithAgent(t.Context(), files[2], files[0], built.Agent.Base,
			io.NewSectionReader(files[1], 0, info.Size()), built.Arch)
	}
	if err != nil {
		t.Fatal(err)
	}
	return Platform{p.Kernel, files[2].Name()}
}

// agent builds the main package at a path relative to the test's directory.
func agent(t *testing.T, main string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "init")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, main)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	run(t, build)
	return binary
}

// NewPlatform builds an installer OS into dir, with a Debian kernel package. Its /init is the main package at a path
// relative to the test's directory. The program under test builds it: with the race detector, in the process of the
// test, it would take minutes.
func NewPlatform(t *testing.T, dir, kernel, main string) Platform {
	t.Helper()
	skipShort(t)
	run(t, exec.CommandContext(t.Context(), testhead.Program(t), "platform", "build", "--out", dir, "--kernel", kernel,
		"--binary", agent(t, main)))
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
