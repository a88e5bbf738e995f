package apitypes

import (
	"maps"
	"reflect"
	"slices"
)

// ChangedFields returns the paths of the fields, below a path and of so many levels, in which two values of JSON
// differ. A list is one field.
func ChangedFields(path string, was, is any, depth int) (paths []string) {
	if reflect.DeepEqual(was, is) {
		return nil
	}
	x, isMap := was.(map[string]any)
	y, both := is.(map[string]any)
	if !isMap || !both || depth <= 0 {
		return []string{path}
	}
	keys := slices.Collect(maps.Keys(x))
	for key := range y {
		if _, ok := x[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		paths = append(paths, ChangedFields(path+"."+key, x[key], y[key], depth-1)...)
	}
	return paths
}
