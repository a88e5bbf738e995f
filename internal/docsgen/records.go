package docsgen

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// records writes the page of all kinds of record.
func records(src *source) string {
	var b strings.Builder
	b.WriteString("# Records\n\nEvery record of the store: YAML for people, JSON on the wire. " +
		"`spec` is written by people, `status` by\nTrivet. A kind that is read-only is written by Trivet alone. The " +
		"roles are the lowest that may read or write.\n\n")
	b.WriteString("| Kind | In commands and URLs | Short | Scope | Read by | Written by |\n|---|---|---|---|---|---|\n")
	for _, k := range trivet.Kinds {
		fmt.Fprintf(&b, "| [%s](#%s) | `%s` | %s | %s | %s | %s |\n", k.Kind, strings.ToLower(string(k.Kind)), k.Plural,
			code(k.Short), k.Scope, k.Reader, writer(k))
	}
	b.WriteString("\nTypes: `duration` is written `90s` or `1h30m`, `size` `400GB` or `1TiB`; `time` is RFC 3339;\n" +
		"`list of X` and `map of X` are JSON arrays and objects; `a[].b` is a field of each element of the list `a`, " +
		"`a.*.b` of each value of the map `a`.\n\n## Fields of every record\n\n" +
		src.withBounds(text(src.types["Meta"])) + "\n\n")
	t := table{src: src}
	t.fields("", reflect.TypeFor[trivet.Meta]())
	b.WriteString(t.String())
	for _, k := range trivet.Kinds {
		b.WriteString(record(src, k))
	}
	b.WriteString(bootSteps(src))
	return b.String()
}

// writer is the lowest role that writes a kind's records.
func writer(k trivet.KindInfo) string {
	if k.ReadOnly {
		return "Trivet (read-only)"
	}
	return string(k.Writer)
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func record(src *source, k trivet.KindInfo) string {
	t := table{src: src}
	typ := reflect.TypeOf(k.New()).Elem()
	for _, f := range reflect.VisibleFields(typ) {
		if name := jsonName(f); name == "spec" || name == "status" {
			t.fields(name+".", f.Type)
		}
	}
	return fmt.Sprintf("\n## %s\n\n%s\n\n%s", k.Kind, src.withBounds(text(src.types[typ.Name()])), &t)
}

// table gathers the rows of one record.
type table struct {
	src  *source
	rows strings.Builder
}

func (t *table) String() string {
	if t.rows.Len() == 0 {
		return ""
	}
	return "| Field | Type | Description |\n|---|---|---|\n" + t.rows.String()
}

// fields adds a row for each field of a struct, and for what is below it.
func (t *table) fields(path string, in reflect.Type) {
	for i := range in.NumField() {
		f := in.Field(i)
		if f.Anonymous && jsonName(f) == "" {
			t.fields(path, f.Type)
			continue
		}
		if jsonName(f) == "" {
			continue
		}
		fmt.Fprintf(&t.rows, "| `%s%s` | %s | %s |\n", path, jsonName(f), typeName(f.Type), t.describe(in, f))
		if below, mark := element(f.Type); below.Kind() == reflect.Struct && !isText(below) {
			t.fields(path+jsonName(f)+mark+".", below)
		}
	}
}

// describe returns a field's comment, its type's where it has none, and the values that it may have.
func (t *table) describe(in reflect.Type, f reflect.StructField) string {
	below, _ := element(f.Type)
	doc := t.src.field(in, f)
	if doc == "" && isOurs(below) && !isText(below) && below != reflect.TypeFor[trivet.Kind]() {
		doc = t.src.types[below.Name()]
	}
	parts := []string{t.src.withBounds(text(doc))}
	if isOurs(below) {
		for _, c := range t.src.consts[below.Name()] {
			parts = append(parts, value(c))
		}
	}
	return strings.TrimSpace(strings.Join(parts, "<br>"))
}

func value(c named) string {
	if c.doc == "" {
		return fmt.Sprintf("`%q`", c.value)
	}
	return fmt.Sprintf("`%q`: %s", c.value, text(c.doc))
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// element is what a field holds one or many of, and how its path says so.
func element(t reflect.Type) (below reflect.Type, mark string) {
	switch {
	case isText(t):
		return t, ""
	case t.Kind() == reflect.Pointer:
		return element(t.Elem())
	case t.Kind() == reflect.Slice:
		below, mark = element(t.Elem())
		return below, "[]" + mark
	case t.Kind() == reflect.Map:
		below, mark = element(t.Elem())
		return below, ".*" + mark
	}
	return t, ""
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
	case t == reflect.TypeFor[trivet.Duration]():
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
	}
	return t.String()
}
