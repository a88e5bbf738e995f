package test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Without the program under test the tests fail, and say how to build it.
func TestWithoutProgram(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConflict$")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TRIVET=") })
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make build") {
		t.Errorf("without TRIVET: %v\n%s", err, out)
	}
}
