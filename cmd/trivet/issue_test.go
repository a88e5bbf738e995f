package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// A login message has the error and its hint, without what agetty or a terminal would take for commands.
func TestIssue(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "issue")
	setIssue(file, &trivet.Error{Op: "recover", Err: errors.New(`no \n cluster` + "\x1b[2J\u00e4"), Hint: "add --join"})
	text, err := os.ReadFile(file)
	if err != nil || strings.ContainsAny(string(text), "\\\x1b\u00e4") ||
		!strings.Contains(string(text), "no /n cluster") ||
		!strings.Contains(string(text), "hint: add --join") {
		t.Errorf("%q, %v", text, err)
	}
	setIssue(file, nil)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
	setIssue("", errors.New("no file"))
}

// The data directory is found as the flags and the configuration name it, also where they are of a later release.
func TestDataDirOf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("later-flag: [1, 2]\ndata-dir: /of/file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                    "/var/lib/trivet",
		"--data-dir /a":                       "/a",
		"--data-dir=/a --later x":             "/a",
		"--data-dir /a --data-dir=/b":         "/b",
		"--config " + file:                    "/of/file",
		"--config=" + file + " --data-dir /a": "/a",
		"--config /missing":                   "/var/lib/trivet",
		"--data-dir":                          "/var/lib/trivet",
	} {
		if got := dataDirOf(strings.Fields(args)); got != want {
			t.Errorf("%q: %s; want %s", args, got, want)
		}
	}
}
