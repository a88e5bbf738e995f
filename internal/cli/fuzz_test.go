package cli

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
)

// Any file results in records that are valid JSON, or in an ErrInvalid.
func FuzzReadManifest(f *testing.F) {
	f.Add([]byte("kind: Machine\nname: m1\nspec:\n  nics:\n    - mac: 52:54:00:00:00:01\n"))
	f.Add([]byte("kind: Template\nname: t\nspec: {actions: [{name: a, use: noop, timeout: 5m, with: {a: 1.5e3, b: ~, c: |\n  x\n}}]}\n---\n# no more\n"))
	f.Add([]byte(`{"kind":"Network","name":"n","spec":{"cidr":"10.0.0.0/24","ranges":[]}}`))
	f.Add([]byte("a: &a [*a]\nb: *c\n<<: *a\n? x\n: !!binary eA==\nc: .inf\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := readManifest("f", text)
		if err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Fatalf("%v is no ErrInvalid", err)
		}
		for _, m := range found {
			if !json.Valid(m.body) {
				t.Fatalf("%q", m.body)
			}
		}
	})
}

// Any edit results in a patch of labels, annotations and spec, in none, or in an ErrInvalid whose place can be shown.
func FuzzEdit(f *testing.F) {
	const read = "kind: Secret\nname: s\nlabels: {a: b}\nspec: {data: {user: sealed:hidden}}\n"
	f.Add([]byte(read))
	f.Add([]byte("kind: Secret\nname: s\nspec: {data: {user: x}, addresses: [10.0.0.0/24]}\n"))
	f.Add([]byte("kind: Machine\nname: t\nstatus: {}\n---\n- a\n"))
	f.Add([]byte("kind: Secret\nname: s\nlabels:\nspec: [\n"))
	f.Add([]byte("kind: Secret\nname: s\nannotations: {a: b}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := editOf(t, "secret", read)
		file.body = string(text)
		patch, err := file.patch()
		if err != nil {
			if located := file.locateBelow(3, err); !errors.Is(located, trivet.ErrInvalid) {
				t.Fatalf("%v is no ErrInvalid", located)
			}
			return
		}
		var fields map[string]any
		if patch != nil && json.Unmarshal(patch, &fields) != nil {
			t.Fatalf("%q", patch)
		}
		for name := range fields {
			if !slices.Contains(desiredParts, name) {
				t.Fatalf("%q changes %s", patch, name)
			}
		}
	})
}
