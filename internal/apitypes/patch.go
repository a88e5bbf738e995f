package apitypes

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/trivet-project/trivet"
)

// ApplyMergePatch returns a JSON document changed by a merge patch (RFC 7386): properties of the patch replace those of
// the document, null removes them, lists are replaced as a whole. See [trivet.MergePatch] for the inverse.
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

// Equal reports whether two JSON documents have the same value.
func Equal(a, b []byte) bool {
	x, errX := Parse(a)
	y, errY := Parse(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}
