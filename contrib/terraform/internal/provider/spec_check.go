package provider

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

// checkFields returns an error for each field that a type does not have.
func checkFields(value any, t reflect.Type, at string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var errs []error
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			errs = append(errs, checkField(name, value[name], t, at))
		}
	case []any:
		for i, element := range value {
			if t.Kind() == reflect.Slice {
				errs = append(errs, checkFields(element, t.Elem(), fmt.Sprintf("%s[%d]", at, i)))
			}
		}
	}
	return errors.Join(errs...)
}

// checkField checks one field of an object.
func checkField(name string, value any, t reflect.Type, at string) error {
	field := at + "." + name
	switch {
	case t.Kind() == reflect.Map:
		return checkFields(value, t.Elem(), field)
	case t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(textType):
		return nil // of any type, or not an object, which its decoder reports
	}
	f, ok := fieldOf(t, name)
	if !ok {
		return &trivet.FieldError{Field: field, Problem: "is not known; the fields here are " +
			strings.Join(fieldNames(t), ", ")}
	}
	return checkFields(value, f.Type, field)
}

// fieldOf returns the field that has a name in JSON.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if jsonName(f) == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func fieldNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name := jsonName(f); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// jsonName returns the name of a field in JSON; empty: it has none.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}
