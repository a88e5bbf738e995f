package vmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet/internal/platform"
)

// Platform builds an installer OS into dir. Its /init is the main package at a path relative to the test's directory.
func Platform(t *testing.T, dir, kernel, main string) *platform.Result {
	t.Helper()
	skipShort(t)
	binary := filepath.Join(t.TempDir(), "init")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, main)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", main, err, out)
	}
	r, err := platform.Build(t.Context(), platform.Options{Kernel: kernel, Binary: binary, Out: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: kernel %d bytes, initramfs %d bytes (%d unpacked), %d modules", r.KernelVersion, r.Kernel.Bytes,
		r.Initrd.Bytes, r.Unpacked, r.Modules)
	return r
}
