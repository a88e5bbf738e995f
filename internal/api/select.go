package api

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// maxTerms bounds one selector.
const maxTerms = 32

// term is "key=value" or "key!=value".
type term struct {
	key   string
	value string
	not   bool
}

// parseSelector parses comma-separated terms. An empty selector matches everything.
func parseSelector(param, text string) ([]term, error) {
	if text == "" {
		return nil, nil
	}
	var terms []term
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if strings.HasPrefix(value, "=") && param == "labels" {
			return nil, &trivet.FieldError{Field: param, Problem: fmt.Sprintf("%.80q: write one =, as in %.40s%.40s", part,
				key, value)}
		}
		key, not := strings.CutSuffix(key, "!")
		if !ok || key == "" || len(terms) == maxTerms {
			return nil, &trivet.FieldError{Field: param, Problem: fmt.Sprintf(
				"%.80q: want key=value or key!=value, separated by commas, at most %d", part, maxTerms)}
		}
		terms = append(terms, term{key, value, not})
	}
	return terms, nil
}

// selector matches records by labels and by the fields of their JSON.
type selector struct{ labels, fields []term }

// newSelector also checks that the kind has the fields, so that a typing error is not a selector that matches nothing.
func newSelector(labels, fields string, kind trivet.KindInfo) (selector, error) {
	var s selector
	var err error
	if s.labels, err = parseSelector("labels", labels); err != nil {
		return s, err
	}
	if s.fields, err = parseSelector("fields", fields); err != nil {
		return s, err
	}
	for _, t := range s.fields {
		if strings.HasPrefix(t.key, "annotations.") {
			return s, &trivet.FieldError{Field: "fields",
				Problem: fmt.Sprintf("%.80q: nothing is selected by annotations; use a label", t.key)}
		}
		if problem := noSuchField(reflect.TypeOf(kind.New()), strings.Split(t.key, ".")); problem != "" {
			return s, &trivet.FieldError{Field: "fields", Problem: fmt.Sprintf("%.80q: %s", t.key, problem)}
		}
	}
	return s, nil
}

// field returns the value that a field must have; empty: any, or none.
func (s selector) field(key string) string {
	for _, t := range s.fields {
		if t.key == key && !t.not {
			return t.value
		}
	}
	return ""
}

func (s selector) matches(r trivet.Record) bool {
	labels := r.Header().Labels
	for _, t := range s.labels {
		if value, ok := labels[t.key]; (ok && value == t.value) == t.not {
			return false
		}
	}
	for _, t := range s.fields {
		if anyAt(reflect.ValueOf(r), strings.Split(t.key, "."), t.value) == t.not {
			return false
		}
	}
	return true
}

var textType = reflect.TypeFor[encoding.TextMarshaler]()

// noSuchField follows a path through a type. Lists are passed through; in a map, the rest is the key.
func noSuchField(t reflect.Type, path []string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Map || t.Kind() == reflect.Interface:
		return ""
	case len(path) == 0 && (t.Kind() != reflect.Struct || t.Implements(textType)):
		return ""
	case len(path) == 0:
		return "is an object; name one of its fields"
	case t.Kind() != reflect.Struct || t.Implements(textType):
		return "has nothing below it"
	}
	known := apitypes.Properties(t)
	f, ok := known[path[0]]
	if !ok {
		return path[0] + " is not known" + apitypes.Suggest(path[0], known)
	}
	return noSuchField(f.Type, path[1:])
}

// anyAt reports whether the value at a path is want, in a list whether one of them is. A missing value is "".
func anyAt(v reflect.Value, path []string, want string) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return want == ""
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			if anyAt(v.Index(i), path, want) {
				return true
			}
		}
		return v.Len() == 0 && want == ""
	case reflect.Map:
		value := v.MapIndex(reflect.ValueOf(strings.Join(path, ".")))
		if !value.IsValid() {
			return want == ""
		}
		return anyAt(value, nil, want)
	case reflect.Struct:
		if !v.Type().Implements(textType) {
			f, ok := apitypes.Properties(v.Type())[cmp.Or(append(path, "")...)]
			return ok && anyAt(v.FieldByIndex(f.Index), path[1:], want)
		}
	}
	return len(path) == 0 && textOf(v) == want
}

func textOf(v reflect.Value) string {
	if v.Type().Implements(textType) {
		if v.IsZero() {
			return ""
		}
		text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err == nil {
			return string(text)
		}
	}
	return fmt.Sprint(v.Interface())
}
