package apitypes

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/trivet-project/trivet"
)

// ApplyMergePatch changes a JSON document by a merge patch (RFC 7386): properties of the patch replace those of the
// document, null takes them away, lists are replaced as a whole. What the patch does not name stays as it is.
func ApplyMergePatch(document, patch []byte) ([]byte, error) {
	change, err := Parse(patch)
	if err != nil {
		return nil, fmt.Errorf("merge patch: %w", err)
	}
	if _, ok := change.(map[string]any); !ok {
		return nil, fmt.Errorf("merge patch: %w: must be an object, not %s", trivet.ErrInvalid, formOf(change))
	}
	base, err := Parse(document)
	if err != nil {
		return nil, fmt.Errorf("merge patch: document: %w", err)
	}
	return json.Marshal(merge(base, change))
}

// merge is MergePatch of RFC 7386 §2.
func merge(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := target.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(out, key)
			continue
		}
		out[key] = merge(out[key], value)
	}
	return out
}

// Diff gives the merge patch that makes after of before. A property that became null cannot be told from one that is
// gone.
func Diff(before []byte, after any) ([]byte, error) {
	text, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	a, err := Parse(before)
	if err != nil {
		return nil, err
	}
	b, err := Parse(text)
	if err != nil {
		return nil, err
	}
	from, okA := a.(map[string]any)
	to, okB := b.(map[string]any)
	if !okA || !okB {
		return nil, fmt.Errorf("diff: %w: a merge patch is between objects", trivet.ErrInvalid)
	}
	return json.Marshal(diff(from, to))
}

func diff(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range from {
		if _, ok := to[key]; !ok {
			patch[key] = nil
		}
	}
	for key, value := range to {
		old, ok := from[key]
		a, okA := old.(map[string]any)
		b, okB := value.(map[string]any)
		switch {
		case ok && reflect.DeepEqual(old, value):
		case okA && okB:
			patch[key] = diff(a, b)
		default:
			patch[key] = value
		}
	}
	return patch
}

// Equal says whether two JSON documents have the same value.
func Equal(a, b []byte) bool {
	x, errX := Parse(a)
	y, errY := Parse(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}
