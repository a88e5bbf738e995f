package ownership

import (
	"reflect"
	"slices"
	"strings"
)

// Parts are the properties of a record that people write.
var Parts = []string{"labels", "annotations", "spec"}

// A Field is a field of an apply.
type Field struct {
	Path  []string
	Value any // as JSON; nil: the field is to be absent
}

// Fields returns the fields of a record that is applied, in order. given is its JSON as it was written, and record the
// JSON of the decoded record, which lacks what is zero. Both have been decoded with numbers in the same form.
func Fields(given, record map[string]any) (all []Field) {
	for _, part := range Parts {
		if value, ok := given[part].(map[string]any); ok {
			all = append(all, fieldsOf([]string{part}, value, record[part])...)
		}
	}
	slices.SortFunc(all, func(a, b Field) int { return slices.Compare(a.Path, b.Path) })
	return all
}

func fieldsOf(path []string, given, record any) (all []Field) {
	written, isObject := given.(map[string]any)
	values, hasObject := record.(map[string]any)
	switch {
	case hasObject && !isObject: // written in another form, such as a text
		written = values
	case record != nil && !hasObject:
		return []Field{{path, record}}
	case record == nil && !isObject:
		return []Field{{path, nil}}
	}
	for key, value := range written {
		all = append(all, fieldsOf(append(slices.Clone(path), key), value, values[key])...)
	}
	return all
}

// A key is escaped in a pointer: RFC 6901 section 3.
var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// pointer returns the JSON pointer of a path.
func pointer(path []string) string {
	var b strings.Builder
	for _, key := range path {
		b.WriteByte('/')
		b.WriteString(escape.Replace(key))
	}
	return b.String()
}

// pathOf returns the path of a JSON pointer.
func pathOf(pointer string) (path []string) {
	for key := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		path = append(path, unescape.Replace(key))
	}
	return path
}

// valueAt returns the value of a path, or nil.
func valueAt(v any, path []string) any {
	for _, key := range path {
		object, _ := v.(map[string]any)
		v = object[key]
	}
	return v
}

// differs reports whether two records have different values at a path.
func differs(a, b any, path []string) bool {
	return !reflect.DeepEqual(valueAt(a, path), valueAt(b, path))
}

// A set is a sorted list of pointers.
type set []string

func setOf(fields []Field) set {
	s := make(set, 0, len(fields))
	for _, f := range fields {
		s = append(s, pointer(f.Path))
	}
	slices.Sort(s)
	return slices.Compact(s)
}

// overlaps reports whether the set has the field, or one that it is a part of, or a part of it.
func (s set) overlaps(pointer string) bool {
	for above := pointer; above != ""; above = above[:strings.LastIndexByte(above, '/')] {
		if _, ok := slices.BinarySearch(s, above); ok {
			return true
		}
	}
	i, _ := slices.BinarySearch(s, pointer+"/")
	return i < len(s) && strings.HasPrefix(s[i], pointer+"/")
}

// without returns the set without what overlaps with another one.
func (s set) without(other set) set {
	return slices.DeleteFunc(slices.Clone(s), other.overlaps)
}
