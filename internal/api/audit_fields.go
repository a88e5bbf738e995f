package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// maxAuditDepth bounds the path of a changed field: below it, the field that contains the change is named.
const maxAuditDepth = 5

// changedFields returns the paths of the fields in which two versions of a record differ, without their values. A list
// is one field.
func changedFields(was, is []byte) (paths []string) {
	var a, b map[string]any
	if json.Unmarshal(was, &a) != nil || json.Unmarshal(is, &b) != nil {
		return nil
	}
	for _, part := range []string{"labels", "annotations", "spec", "status"} {
		paths = diffFields(paths, part, a[part], b[part], 1)
	}
	if len(paths) > maxAuditFields {
		paths = append(paths[:maxAuditFields], "and others")
	}
	return paths
}

func diffFields(paths []string, path string, a, b any, depth int) []string {
	if reflect.DeepEqual(a, b) {
		return paths
	}
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if !isMap || !both || depth == maxAuditDepth {
		return append(paths, path)
	}
	keys := slices.Collect(maps.Keys(x))
	for key := range y {
		if _, ok := x[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		paths = diffFields(paths, path+"."+key, x[key], y[key], depth+1)
	}
	return paths
}
