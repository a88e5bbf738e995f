package cli

import (
	"encoding/json"
	"errors"
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
