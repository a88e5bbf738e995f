package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trivet-project/trivet"
)

// editOf returns the edit of a record that was read as this text.
func editOf(t *testing.T, kind, text string) *editFile {
	t.Helper()
	info, err := trivet.LookupKind(kind)
	if err != nil {
		t.Fatal(err)
	}
	f := &editFile{kind: info, path: "record.yaml", body: text}
	doc, err := f.parse(0)
	if err != nil {
		t.Fatal(err)
	}
	f.before = doc.value.(map[string]any)
	return f
}

// What an earlier release permitted, and the head still does, is no obstacle to another change.
func TestEditOfEarlierRecord(t *testing.T) {
	const read = "kind: Template\nname: t\nspec: {actions: [{name: a, use: noop}], parameters: [{name: p}, {name: p}]}\n"
	f := editOf(t, "template", read)
	f.body += "labels: {a: b}\n"
	if patch, err := f.patch(); err != nil || string(patch) != `{"labels":{"a":"b"}}` {
		t.Errorf("%s, %v", patch, err)
	}
}

// A file that cannot be written again, as the disk is full, still has the edit.
func TestEditOnFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mount (requires root): %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	f := editOf(t, "secret", "kind: Secret\nname: s\nspec: {data: {user: root}}\n#")
	f.body += strings.Repeat("-", os.Getpagesize()-len(f.body)) // a longer file needs another page
	f.path = filepath.Join(disk, "s.yaml")
	if err := f.write(""); err != nil {
		t.Fatal(err)
	}
	full := os.WriteFile(filepath.Join(disk, "full"), make([]byte, 64<<10), 0o600)
	if err := f.refuse(trivet.ErrInvalid); !errors.Is(err, syscall.ENOSPC) || !errors.Is(full, syscall.ENOSPC) {
		t.Errorf("the disk is not full: %v, %v", err, full)
	}
	if got, err := os.ReadFile(f.path); err != nil || string(got) != f.body {
		t.Errorf("%v, the file has %.300q", err, got)
	}
}

// laterCommand patches a record as a program of a later release does, whose fields this one does not know:
// later KIND NAME PATCH.
func laterCommand(ts *testscript.TestScript, _ bool, args []string) {
	c, err := ts.Value(headKey{}).(*head).client()
	ts.Check(err)
	defer c.Close()
	info, err := trivet.LookupKind(args[0])
	ts.Check(err)
	_, err = c.Kind(info).Patch(context.Background(), args[1], []byte(args[2]), 0)
	ts.Check(err)
}
