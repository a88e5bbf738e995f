package actionspec

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"github.com/trivet-project/trivet"
)

// Doc describes one action for the reference documentation.
type Doc struct {
	Name        string
	Description string
	Args        []Arg
}

// Arg describes one argument of an action.
type Arg struct {
	Name string
	// "text", "number", "boolean", "duration", "size", "list of texts", "map of texts", "object", ...
	Type        string
	Required    bool
	Default     string // as it is written in a template; empty: none
	Description string
	Values      []string // all that it may have; none: any of the type
	Args        []Arg    // of an object, or of the objects of a list
}

// Actions describes the built-in actions in the order of an ordinary install. Names, types and defaults are those of
// the structs, descriptions those of the table below.
func Actions() []Doc {
	var out []Doc
	for _, use := range trivet.ActionUses {
		args := describe(use, reflect.ValueOf(constructors[use]()).Elem())
		out = append(out, Doc{Name: use, Description: descriptions[use], Args: args})
	}
	return out
}

// describe lists a struct's arguments in their order, those of embedded structs where they are embedded.
func describe(action string, v reflect.Value) []Arg {
	var out []Arg
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag := f.Tag.Get("with")
		if v.Type() == hintsType {
			tag = f.Tag.Get("json")
		}
		key, option, _ := strings.Cut(tag, ",")
		if key == "" {
			if f.Anonymous {
				out = append(out, describe(action, v.Field(i))...)
			}
			continue
		}
		arg := Arg{Name: key, Type: typeName(f.Type), Required: option == "required", Default: defaultOf(v.Field(i))}
		arg.Description, arg.Values = shared(descriptions, action, key), shared(choices, action, key)
		if nested := elemType(f.Type); nested.Kind() == reflect.Struct && arg.Type != "text" {
			arg.Args = describe(action+"."+key, reflect.New(nested).Elem())
		}
		out = append(out, arg)
	}
	return out
}

func elemType(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return t
}

func typeName(t reflect.Type) string {
	switch t {
	case hintsType:
		return "path or object"
	case reflect.TypeFor[[]Target]():
		return "list of paths or objects"
	case reflect.TypeFor[trivet.Duration]():
		return "duration"
	case reflect.TypeFor[trivet.ByteSize]():
		return "size"
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "text"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Int:
		return "number"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "list of " + typeName(t.Elem()) + "s"
	case reflect.Map:
		return "map of " + typeName(t.Elem()) + "s"
	case reflect.Struct:
		return "object"
	}
	return "text"
}

func defaultOf(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	if t, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, _ := t.MarshalText() // those of this package's defaults do not fail
		return string(b)
	}
	return fmt.Sprint(v.Interface())
}

// shared finds what a table has of an argument: the action's own, or what several actions share.
func shared[T any](table map[string]T, action, key string) T {
	if own, ok := table[action+"."+key]; ok {
		return own
	}
	if at := strings.LastIndexByte(action, '.'); at >= 0 {
		return table[action[at+1:]+"."+key]
	}
	return table["*."+key]
}
