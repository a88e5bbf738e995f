package trivet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// MergePatch returns the merge patch (RFC 7386) that changes the JSON object before into the JSON of after. A
// property that became null cannot be distinguished from one that was removed.
func MergePatch(before []byte, after any) ([]byte, error) {
	text, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	from, err := jsonObject(before)
	if err != nil {
		return nil, err
	}
	to, err := jsonObject(text)
	if err != nil {
		return nil, err
	}
	return json.Marshal(mergePatch(from, to))
}

func jsonObject(text []byte) (object map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&object); err != nil || object == nil {
		return nil, fmt.Errorf("merge patch: %w: not a JSON object: %v", ErrInvalid, err)
	}
	return object, nil
}

func mergePatch(from, to map[string]any) map[string]any {
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
			patch[key] = mergePatch(a, b)
		default:
			patch[key] = value
		}
	}
	return patch
}
