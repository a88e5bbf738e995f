package api_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Annotations are refused before all heads know them. Then they are written, replaced and patched as labels are: a
// record that is written without them has none, and what is wrong is named.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	cl := h.client(h.account("op", "operator"))
	machines := client.Of[trivet.Machine](cl)
	m := machine("m1", "52:54:00:00:00:01")
	m.Annotations = map[string]string{"note": "fan 3 is loud\nreplaced"}
	if _, err := machines.Create(t.Context(), m); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "annotations need release 0.3.1 on all heads") {
		t.Errorf("before all heads have the release: %v", err)
	}
	h.reach(trivet.CurrentRelease)
	made, err := machines.Create(t.Context(), m)
	if err != nil || made.Annotations["note"] != m.Annotations["note"] {
		t.Fatalf("%+v, %v", made, err)
	}
	patched, err := machines.Patch(t.Context(), "m1", []byte(`{"annotations":{"owner":"ops"}}`), 0)
	if err != nil || len(patched.Annotations) != 2 || patched.Generation != made.Generation {
		t.Errorf("patched: %+v, %v", patched, err)
	}
	if _, err := machines.Patch(t.Context(), "m1", []byte(`{"annotations":{"a b":"ops"}}`), 0); !errors.Is(err,
		trivet.ErrInvalid) || !strings.Contains(err.Error(), "annotations.a b has a wrong key") {
		t.Errorf("a wrong key: %v", err)
	}
	m.Annotations = nil
	replaced, err := machines.Update(t.Context(), m)
	if err != nil || replaced.Annotations != nil {
		t.Errorf("replaced by one without: %+v, %v", replaced, err)
	}
	_, _, err = machines.List(t.Context(), client.ListOptions{Fields: "annotations.note=a"})
	if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "nothing is selected by annotations") {
		t.Errorf("a selector: %v", err)
	}
}
