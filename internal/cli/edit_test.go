package cli

import (
	"context"
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
