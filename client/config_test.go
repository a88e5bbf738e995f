package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func TestEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.yaml")
	t.Setenv("TRIVET_CONFIG", path)
	for _, name := range []string{"ENDPOINTS", "TRUST", "TOKEN", "CONTEXT"} {
		t.Setenv("TRIVET_"+name, "")
	}
	f := client.File{Current: "a", Contexts: map[string]client.Context{
		"a": {Endpoints: []string{"https://a:1"}, Trust: "sha256:aa", Token: "ta"},
		"b": {Endpoints: []string{"https://b:1"}, Trust: "-----BEGIN\nX\n", Token: "tb"},
	}}
	if err := f.Write(path); err != nil {
		t.Fatal(err)
	}
	check := func(context string, want client.Config) {
		t.Helper()
		got, err := client.Environment(context)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	check("", client.Config{Endpoints: []string{"https://a:1"}, Trust: "sha256:aa", Token: "ta"})
	check("b", client.Config{Endpoints: []string{"https://b:1"}, Trust: "-----BEGIN\nX\n", Token: "tb"})
	t.Setenv("TRIVET_CONTEXT", "b")
	t.Setenv("TRIVET_ENDPOINTS", "x:1,y:1")
	check("", client.Config{Endpoints: []string{"x:1", "y:1"}, Trust: "-----BEGIN\nX\n", Token: "tb"})
	if _, err := client.Environment("c"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("no such context: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Environment(""); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("others may read it: %v", err)
	}
}
