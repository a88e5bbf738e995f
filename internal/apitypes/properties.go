package apitypes

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

var known sync.Map // reflect.Type to map[string]reflect.StructField

// Properties returns the JSON properties of a struct, including those of embedded structs. The fields' Index is from
// the struct itself.
func Properties(t reflect.Type) map[string]reflect.StructField {
	if there, ok := known.Load(t); ok {
		return there.(map[string]reflect.StructField)
	}
	found := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "" && name != "-" {
			found[name] = f
		}
	}
	known.Store(t, found)
	return found
}

// Suggest returns the known property that is closest to key.
func Suggest[V any](key string, known map[string]V) string {
	names := slices.Sorted(maps.Keys(known))
	best, least := "", 3
	for _, name := range names {
		if d := distance(strings.ToLower(key), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	return "; the known ones are " + strings.Join(names, ", ")
}

// distance returns the edit distance of a and b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
