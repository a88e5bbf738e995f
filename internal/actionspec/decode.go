package actionspec

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// decoder fills a struct's tagged fields from a map.
type decoder struct {
	problems *problems
	// isTemplate accepts texts with "{{" for every field: the field keeps its default and is recorded as a draft.
	isTemplate bool
}

// field is one argument of a struct.
type field struct {
	value      reflect.Value
	isRequired bool
}

var hintsType = reflect.TypeFor[trivet.DiskHints]()

// fieldsOf returns a struct's arguments by their keys, including those of embedded structs.
func fieldsOf(v reflect.Value) map[string]field {
	out := map[string]field{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag := f.Tag.Get("with")
		if v.Type() == hintsType {
			tag = f.Tag.Get("json")
		}
		key, option, _ := strings.Cut(tag, ",")
		switch {
		case key != "":
			out[key] = field{v.Field(i), option == "required"}
		case f.Anonymous:
			maps.Copy(out, fieldsOf(v.Field(i)))
		}
	}
	return out
}

// fields decodes a map into a struct. path is "" or ends with a dot.
func (d *decoder) fields(path string, with map[string]any, into reflect.Value) {
	known := fieldsOf(into)
	for _, key := range slices.Sorted(maps.Keys(with)) {
		f, ok := known[key]
		if !ok {
			d.problems.add(path+key, "is not known%s", suggest(key, known))
			continue
		}
		d.value(path+key, with[key], f.value)
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if value := with[key]; known[key].isRequired && (value == nil || value == "") {
			d.problems.add(path+key, "is required")
		}
	}
}

func suggest(key string, known map[string]field) string {
	if len(known) == 0 {
		return "; the action has no arguments"
	}
	return apitypes.Suggest(key, known)
}

func (d *decoder) value(path string, value any, into reflect.Value) {
	if value == nil {
		return
	}
	if text, ok := value.(string); ok && d.isTemplate && strings.Contains(text, "{{") {
		d.problems.drafts = append(d.problems.drafts, path)
		return
	}
	if t, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(path, value, t)
		return
	}
	switch into.Kind() {
	case reflect.String:
		if text, ok := scalar(value); ok {
			into.SetString(text)
			return
		}
		d.problems.add(path, "must be a text")
	case reflect.Int:
		d.integer(path, value, into)
	case reflect.Bool:
		d.boolean(path, value, into)
	case reflect.Slice:
		d.list(path, value, into)
	case reflect.Map:
		d.texts(path, value, into)
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, value, into.Elem())
	case reflect.Struct:
		d.object(path, value, into)
	default:
		panic("actionspec: field of kind " + into.Kind().String())
	}
}

// object decodes a nested struct. Disk hints and devices may be written as a text, which is the path.
func (d *decoder) object(path string, value any, into reflect.Value) {
	switch text, ok := value.(string); {
	case ok && into.Type() == hintsType:
		into.Set(reflect.ValueOf(trivet.DiskHints{Path: text}))
		return
	case ok && into.Type() == targetType:
		into.Set(reflect.ValueOf(targetOf(text)))
		return
	}
	m, ok := value.(map[string]any)
	if !ok {
		d.problems.add(path, "must be keys and values")
		return
	}
	d.fields(path+".", m, into)
}

func (d *decoder) text(path string, value any, into encoding.TextUnmarshaler) {
	text, ok := value.(string)
	if !ok {
		d.problems.add(path, "must be a text in quotes")
		return
	}
	if err := into.UnmarshalText([]byte(text)); err != nil {
		d.problems.add(path, "is not valid: %v", err)
	}
}

func (d *decoder) integer(path string, value any, into reflect.Value) {
	text, ok := scalar(value)
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		d.problems.add(path, "must be a whole number")
		return
	}
	into.SetInt(int64(n))
}

func (d *decoder) boolean(path string, value any, into reflect.Value) {
	text, ok := scalar(value)
	b, err := strconv.ParseBool(text)
	if !ok || err != nil {
		d.problems.add(path, "must be true or false")
		return
	}
	into.SetBool(b)
}

func (d *decoder) list(path string, value any, into reflect.Value) {
	list := reflect.ValueOf(value) // []any from JSON, []string from Go
	if list.Kind() != reflect.Slice {
		d.problems.add(path, "must be a list")
		return
	}
	if list.Len() > maxWords {
		d.problems.add(path, "has %d entries; at most %d", list.Len(), maxWords)
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), list.Len(), list.Len()))
	for i := range list.Len() {
		d.value(fmt.Sprintf("%s[%d]", path, i), list.Index(i).Interface(), into.Index(i))
	}
}

func (d *decoder) texts(path string, value any, into reflect.Value) {
	m := reflect.ValueOf(value)
	if m.Kind() != reflect.Map || m.Type().Key().Kind() != reflect.String {
		d.problems.add(path, "must be keys and values")
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for it := m.MapRange(); it.Next(); {
		item := reflect.New(into.Type().Elem()).Elem()
		d.value(path+"."+it.Key().String(), it.Value().Interface(), item)
		into.SetMapIndex(it.Key(), item)
	}
}

// scalar returns the text of a value that people write without quotes where a text is expected: 2, true. Numbers from
// JSON are floats; only whole ones are accepted.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), v == math.Trunc(v) && math.Abs(v) < 1<<53
	case int, int64, uint64:
		return fmt.Sprint(v), true
	}
	return "", false
}
