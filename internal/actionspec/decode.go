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
)

// decoder fills a struct's tagged fields from a map.
type decoder struct {
	problems *problems
	// isTemplate lets texts with "{{" stand anywhere: their fields keep the default, and isDraft says that there was one.
	isTemplate, isDraft bool
}

// fields decodes a map into a struct. path is "" or ends with a dot.
func (d *decoder) fields(path string, with map[string]any, into reflect.Value) {
	known := map[string]reflect.Value{}
	tagged(into, known)
	for _, key := range slices.Sorted(maps.Keys(with)) {
		value := with[key]
		field, ok := known[key]
		if !ok {
			d.problems.add(path+key, "is not known here; there are %s", names(known))
			continue
		}
		d.value(path+key, value, field)
	}
}

// tagged gathers a struct's fields by their keys, those of embedded structs too.
func tagged(v reflect.Value, known map[string]reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if key := f.Tag.Get("with"); key != "" {
			known[key] = v.Field(i)
		} else if f.Anonymous {
			tagged(v.Field(i), known)
		}
	}
}

func names(known map[string]reflect.Value) string {
	if len(known) == 0 {
		return "no arguments"
	}
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

func (d *decoder) value(path string, value any, into reflect.Value) {
	if value == nil {
		return
	}
	if text, ok := value.(string); ok && d.isTemplate && strings.Contains(text, "{{") {
		d.isDraft = true
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
		text, ok := scalar(value)
		b, err := strconv.ParseBool(text)
		if !ok || err != nil {
			d.problems.add(path, "must be true or false")
			return
		}
		into.SetBool(b)
	case reflect.Slice:
		d.list(path, value, into)
	case reflect.Map:
		d.texts(path, value, into)
	case reflect.Struct:
		m, ok := value.(map[string]any)
		if !ok {
			d.problems.add(path, "must be keys and values")
			return
		}
		d.fields(path+".", m, into)
	default:
		panic("spec: field of kind " + into.Kind().String())
	}
}

func (d *decoder) text(path string, value any, into encoding.TextUnmarshaler) {
	text, ok := value.(string)
	if !ok {
		d.problems.add(path, "must be a text in quotes")
		return
	}
	if err := into.UnmarshalText([]byte(text)); err != nil {
		d.problems.add(path, "is wrong: %v", err)
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

// scalar gives a text for what people write without quotes where a text is meant: 2, true. Numbers from JSON are floats;
// only whole ones are taken.
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
