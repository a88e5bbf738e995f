package apitypes

import (
	"reflect"
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
