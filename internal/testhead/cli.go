package testhead

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Program returns the absolute path of the program under test, which is $TRIVET.
func Program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TRIVET")
	if path == "" {
		t.Fatal("TRIVET is not set: run make test, or make build && TRIVET=$PWD/bin/trivet go test ./test/...")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// RequireRoot fails the test unless it runs as root.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces and mounts need root: sudo make test")
	}
}

// Result is what an operator command has written.
type Result struct {
	Stdout string
	All    string // standard output and standard error, in order
}

// CLI runs an operator command with the credential of a file. The command may have an environment and an input.
func CLI(ctx context.Context, cmd *exec.Cmd, adminFile string) (r Result, err error) {
	var out bytes.Buffer
	all := NewLog() // standard output and standard error are written at the same time
	cmd.Env = append(cmd.Environ(), "TRIVET_CONFIG="+adminFile)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, all), all
	if err := cmd.Start(); err != nil {
		return r, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer stop()
	err = cmd.Wait()
	r = Result{out.String(), all.String()}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, r.All)
	}
	return r, err
}
