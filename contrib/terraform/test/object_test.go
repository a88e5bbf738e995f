package test

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// object is the attributes of a configuration: strings, bools, lists and maps of strings, objects, or unknown.
type object map[string]any

// unknown is a value that is known after apply.
type unknown struct{}

// with returns a copy with other attributes; nil removes one.
func (o object) with(pairs ...any) object {
	out := object{}
	for name, value := range o {
		out[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1]
	}
	return out
}

// value returns a value of a schema. Attributes that are not set are null.
func (o object) value(t tftypes.Object) tftypes.Value {
	fields := map[string]tftypes.Value{}
	for name, at := range t.AttributeTypes {
		fields[name] = valueOf(o[name], at)
	}
	for name := range o {
		if t.AttributeTypes[name] == nil {
			panic("no attribute " + name)
		}
	}
	return tftypes.NewValue(t, fields)
}

func valueOf(v any, t tftypes.Type) tftypes.Value {
	switch v := v.(type) {
	case unknown:
		return tftypes.NewValue(t, tftypes.UnknownValue)
	case map[string]any:
		if at, ok := t.(tftypes.Object); ok {
			return object(v).value(at)
		}
		elements := map[string]tftypes.Value{}
		for key, element := range v {
			elements[key] = valueOf(element, t.(tftypes.Map).ElementType)
		}
		return tftypes.NewValue(t, elements)
	case []string:
		elements := []tftypes.Value{}
		for _, element := range v {
			elements = append(elements, tftypes.NewValue(tftypes.String, element))
		}
		return tftypes.NewValue(t, elements)
	}
	return tftypes.NewValue(t, v)
}

// fields returns the attributes of an object.
func fields(v tftypes.Value) map[string]tftypes.Value {
	out := map[string]tftypes.Value{}
	if v.IsNull() {
		return out
	}
	if err := v.As(&out); err != nil {
		panic(err)
	}
	return out
}

// text returns a value as Go has it: a string, number, bool, or <null>, <unknown>.
func text(v tftypes.Value) string {
	switch {
	case !v.IsKnown():
		return "<unknown>"
	case v.IsNull():
		return "<null>"
	}
	var s string
	if v.As(&s) == nil {
		return s
	}
	return fmt.Sprint(v)
}
