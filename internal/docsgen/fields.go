package docsgen

import (
	"cmp"
	"encoding"
	"reflect"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reference"
)

// document describes all records, and the other types of the API, by their types and comments.
func document(src *source) reference.Document {
	d := reference.Document{Meta: src.fieldsOf(reflect.TypeFor[trivet.Meta]())}
	for _, k := range trivet.Kinds {
		typ := reflect.TypeOf(k.New()).Elem()
		kind := reference.Field{Name: string(k.Kind), Type: "object",
			Description: src.withBounds(links(src.types[typ.Name()]))}
		for _, f := range reflect.VisibleFields(typ) {
			if name := jsonName(f); name == "spec" || name == "status" {
				kind.Fields = append(kind.Fields, src.describe(typ, f))
			}
		}
		d.Kinds = append(d.Kinds, kind)
	}
	d.Types = src.allTypes()
	return d
}

// fieldsOf describes the fields of a struct, those of embedded structs where they are embedded.
func (s *source) fieldsOf(in reflect.Type) (all []reference.Field) {
	s.described[in.Name()] = true
	for i := range in.NumField() {
		f := in.Field(i)
		switch {
		case jsonName(f) != "":
			all = append(all, s.describe(in, f))
		case f.Anonymous:
			all = append(all, s.fieldsOf(f.Type)...)
		}
	}
	return all
}

// describe describes a field by its comment, or its type's where it has none, its default, the values that its type may
// have, and what is below it.
func (s *source) describe(in reflect.Type, f reflect.StructField) reference.Field {
	below, doc := element(f.Type), s.field(in, f)
	if doc == "" && isOurs(below) && !isText(below) && below != reflect.TypeFor[trivet.Kind]() {
		doc = s.types[below.Name()]
	}
	d := reference.Field{Name: jsonName(f), Type: typeName(f.Type), Default: defaultOf(in, f),
		Description: s.withBounds(links(doc))}
	if isOurs(below) {
		d.Values = s.values(below.Name())
	}
	if below.Kind() == reflect.Struct && !isText(below) {
		d.Fields = s.fieldsOf(below)
	}
	return d
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// element is what a field holds one or many of.
func element(t reflect.Type) reflect.Type {
	if isText(t) || t.Kind() != reflect.Pointer && t.Kind() != reflect.Slice && t.Kind() != reflect.Map {
		return t
	}
	return element(t.Elem())
}

func isOurs(t reflect.Type) bool { return t.PkgPath() == reflect.TypeFor[trivet.Machine]().PkgPath() }

// isText reports whether a type is one string in JSON.
func isText(t reflect.Type) bool {
	text := reflect.TypeFor[encoding.TextMarshaler]()
	return t.Implements(text) || reflect.PointerTo(t).Implements(text)
}

// typeName names a type as people know it from JSON.
func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t == reflect.TypeFor[trivet.Duration](), t == reflect.TypeFor[trivet.SignedDuration]():
		return "duration"
	case isText(t):
		return cmp.Or(map[string]string{"Addr": "IP address", "Prefix": "subnet", "ByteSize": "size"}[t.Name()],
			"string")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "map of " + typeName(t.Elem())
	case reflect.Struct:
		return "object"
	case reflect.Interface:
		return "any"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float64:
		return "number"
	}
	return t.String()
}
