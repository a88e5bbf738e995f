package store

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/trivet-project/trivet"
)

// Two versions run side by side during an upgrade: a record may have fields that only the newer one knows. keepUnknown
// returns the JSON to store: what this version wrote, and the stored fields that this version does not know.
//
// Objects are merged by the record's Go type. List elements are matched by key: the property whose field has the tag
// `merge:"key"`, else "name", else their index. Values without Go fields (any, types that unmarshal themselves) are
// replaced as a whole; the values of a map are merged.
func keepUnknown(t reflect.Type, stored, written []byte) ([]byte, error) {
	return merged(t, stored, written, true)
}

// keepInLists does so for list elements only. It is for a writer that preserves all other stored fields, such as a
// merge patch, which names the fields that it removes but can only replace a list as a whole.
func keepInLists(t reflect.Type, stored, written []byte) ([]byte, error) {
	return merged(t, stored, written, false)
}

func merged(t reflect.Type, stored, written []byte, keep bool) ([]byte, error) {
	was, err := parse(stored)
	if err != nil {
		return nil, fmt.Errorf("stored record: %w: %w", trivet.ErrInvalid, err)
	}
	is, err := parse(written)
	if err != nil {
		return nil, fmt.Errorf("record: %w: %w", trivet.ErrInvalid, err)
	}
	return json.Marshal(carry(t, was, is, keep))
}

// carry adds to is the fields of was that the type does not have: all of them (keep), or within lists only.
func carry(t reflect.Type, was, is any, keep bool) any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if unmarshalsItself(t) {
		return is
	}
	switch t.Kind() {
	case reflect.Struct:
		return carryStruct(t, was, is, keep)
	case reflect.Map:
		from, okA := was.(map[string]any)
		to, okB := is.(map[string]any)
		if okA && okB {
			for k, v := range to {
				if old, ok := from[k]; ok {
					to[k] = carry(t.Elem(), old, v, keep)
				}
			}
		}
	case reflect.Slice, reflect.Array:
		from, okA := was.([]any)
		to, okB := is.([]any)
		if okA && okB {
			carryList(t.Elem(), from, to)
		}
	}
	return is
}

func carryStruct(t reflect.Type, was, is any, keep bool) any {
	from, okA := was.(map[string]any)
	to, okB := is.(map[string]any)
	if !okA || !okB {
		return is
	}
	fields := fieldsOf(t)
	for k, old := range from {
		f, known := fields.byName[strings.ToLower(k)]
		v, present := to[k]
		switch {
		case known && present:
			to[k] = carry(f, old, v, keep)
		case keep && !known && !present:
			to[k] = old
		case keep && known && !present && f.Kind() == reflect.Struct && !unmarshalsItself(f):
			// Omitted because it is zero in this version ("omitzero"); its unknown fields stay.
			if rest, ok := carry(f, old, map[string]any{}, true).(map[string]any); ok && len(rest) > 0 {
				to[k] = rest
			}
		}
	}
	return to
}

func carryList(t reflect.Type, from, to []any) {
	key := ""
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		key = fieldsOf(t).key
	}
	used := make([]bool, len(from))
	for i, v := range to {
		if j := match(key, i, v, from, used); j >= 0 {
			used[j] = true
			to[i] = carry(t, from[j], v, true)
		}
	}
}

// match returns the index of the stored element that v replaces: the first unused one with the same key, or the one
// with the same index. -1: none.
func match(key string, index int, v any, from []any, used []bool) int {
	if key == "" {
		if index < len(from) {
			return index
		}
		return -1
	}
	for j, old := range from {
		if !used[j] && keyOf(old, key) != nil && keyOf(old, key) == keyOf(v, key) {
			return j
		}
	}
	return -1
}

// keyOf returns an element's key if it is a string or a number.
func keyOf(v any, key string) any {
	object, _ := v.(map[string]any)
	switch k := object[key].(type) {
	case string, json.Number:
		return k
	}
	return nil
}

// fields are the JSON properties of a struct.
type fields struct {
	byName map[string]reflect.Type // by name in lower case: encoding/json ignores case too
	key    string                  // the property that identifies an element of a list
}

var fieldsCache sync.Map // reflect.Type to *fields

func fieldsOf(t reflect.Type) *fields {
	if f, ok := fieldsCache.Load(t); ok {
		return f.(*fields)
	}
	found := &fields{byName: map[string]reflect.Type{}}
	tagged := false
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		found.byName[strings.ToLower(name)] = f.Type
		if f.Tag.Get("merge") == "key" || name == "name" && !tagged {
			found.key, tagged = name, tagged || f.Tag.Get("merge") == "key"
		}
	}
	fieldsCache.Store(t, found)
	return found
}

var (
	jsonReader = reflect.TypeFor[json.Unmarshaler]()
	textReader = reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()
)

// unmarshalsItself reports whether a type has its own unmarshaler, such as time.Time, netip.Addr and json.RawMessage.
func unmarshalsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(jsonReader) || p.Implements(textReader)
}
