package docsgen

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/reference"
)

// withRules adds what the validation of records requires: the fields that must be set, and the values that texts may
// have. It is found by the errors about records that are empty but for what leads to a field.
func withRules(d reference.Document) reference.Document {
	for i := range d.Meta {
		d.Meta[i].Required = d.Meta[i].Name == "kind" || d.Meta[i].Name == "name"
	}
	for i := range d.Kinds {
		info, _ := trivet.LookupKind(d.Kinds[i].Name)
		for j := range d.Kinds[i].Fields {
			if f := &d.Kinds[i].Fields[j]; f.Name == "spec" && !info.ReadOnly {
				addRules(info, f.Fields, []string{"spec"})
			}
		}
	}
	return d
}

// explained is the content of internal/reference/records.json.
func explained(src *source, examples []*example) (string, error) {
	doc := withRules(document(src))
	doc.Examples = cutExamples(doc, examples)
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	err := enc.Encode(doc)
	return b.String(), err
}

func addRules(info trivet.KindInfo, fields []reference.Field, path []string) {
	for i := range fields {
		f := &fields[i]
		at := append(slices.Clone(path), f.Name)
		f.Required = isRequired(info, at, fields)
		if allowed := allowedValues(info, at); f.Values == nil {
			f.Values = allowed
		}
		addRules(info, f.Fields, at)
	}
}

// isRequired reports whether a field must be set, whatever is set beside it: of a choice no field is required.
func isRequired(info trivet.KindInfo, path []string, beside []reference.Field) bool {
	parent, name := path[:len(path)-1], path[len(path)-1]
	for _, f := range beside {
		if f.Name == name {
			continue
		}
		set := func(v reflect.Value) { descend(v, []string{f.Name}, fill) }
		if refusal(info, path, parent, set) == "" {
			return false
		}
	}
	return refusal(info, path, path, func(reflect.Value) {}) != ""
}

// fill makes a value other than empty, if it can.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	}
}

// notAllowed is a text that no field with a list of values may have.
const notAllowed = "no such value"

// allowedValues returns the values that a text may have, if they are limited.
func allowedValues(info trivet.KindInfo, path []string) (all []reference.Value) {
	problem := refusal(info, path, path, func(v reflect.Value) {
		if v.Kind() == reflect.String {
			v.SetString(notAllowed)
		}
	})
	if _, list, ok := strings.Cut(problem, `"`+notAllowed+`" must be one of `); ok {
		for value := range strings.SplitSeq(list, ", ") {
			all = append(all, reference.Value{Value: value})
		}
	}
	return all
}

// elementOf matches how the path of an error names an element.
var elementOf = regexp.MustCompile(`\[[^\]]*\]`)

// refusal returns what is wrong with the field of a path, in a record that is empty but for what leads to another path
// and what set does there; empty: nothing.
func refusal(info trivet.KindInfo, path, at []string, set func(reflect.Value)) string {
	r := info.New()
	if n, ok := r.(*trivet.Network); ok && !slices.Contains(path, "cidr") { // what else it has is checked by its subnet
		n.Spec.CIDR = netip.MustParsePrefix("10.0.0.0/24")
	}
	descend(reflect.ValueOf(r).Elem(), at, set)
	for _, e := range apitypes.FieldErrors(r.Validate()) {
		if elementOf.ReplaceAllString(e.Field, "") == strings.Join(path, ".") {
			return e.Problem
		}
	}
	return ""
}

// descend calls set with the field of a path. On the way to it each list and map has one element.
func descend(v reflect.Value, path []string, set func(reflect.Value)) {
	switch {
	case len(path) == 0:
		set(v)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		descend(v.Elem(), path, set)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		descend(v.Index(0), path, set)
	case v.Kind() == reflect.Map:
		one := reflect.New(v.Type().Elem()).Elem()
		descend(one, path, set)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), one)
	default:
		descend(v.FieldByIndex(apitypes.Properties(v.Type())[path[0]].Index), path[1:], set)
	}
}
