package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet"
)

// A spec is held as the fields that a configuration sets, each with its value as a head writes it: "10m0s" for "10m".
// nil is the value of a field that a head leaves out, as it does with false, 0 and empty.

// parseSpec parses the spec of a kind, YAML or JSON, which is strict: an unknown field is an error.
func parseSpec(k *kind, text string) (map[string]any, error) {
	raw, err := parseObject(text)
	if err != nil {
		return nil, err
	}
	if _, has := raw["data"]; has && k.secretData {
		return nil, &trivet.FieldError{Field: "spec.data", Problem: "would be stored in the state; write the values into " +
			"the attribute data, which is not"}
	}
	if err := checkFields(raw, k.field("Spec").Type(), "spec"); err != nil {
		return nil, err
	}
	typed := reflect.New(k.field("Spec").Type())
	doc, err := json.Marshal(raw)
	if err == nil {
		err = json.Unmarshal(doc, typed.Interface())
	}
	if err != nil {
		return nil, fmt.Errorf("spec: %w: %w", trivet.ErrInvalid, err)
	}
	written, err := toAny(typed.Interface())
	if err != nil {
		return nil, err
	}
	return asWritten(raw, written).(map[string]any), nil
}

// readSpec parses a spec of the state, which may be of a later version of the heads.
func readSpec(k *kind, text string) (map[string]any, error) {
	spec, err := parseSpec(k, text)
	if errors.Is(err, trivet.ErrInvalid) {
		return parseObject(text)
	}
	return spec, err
}

// parseObject parses one object. Values are as encoding/json has them.
func parseObject(text string) (object map[string]any, err error) {
	if len(text) > trivet.MaxRecord {
		return nil, fmt.Errorf("spec: %w: %d bytes; at most %d", trivet.ErrTooLarge, len(text), trivet.MaxRecord)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("spec: %w: not YAML or JSON: %s", trivet.ErrInvalid, yaml.FormatError(err, false, false))
	}
	plain, err := toAny(value)
	if err != nil {
		return nil, fmt.Errorf("spec: %w: %w", trivet.ErrInvalid, err)
	}
	object, ok := plain.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("spec: %w: must be an object: use yamlencode({...}) or jsonencode({...})",
			trivet.ErrInvalid)
	}
	return object, nil
}

// toAny returns a value as encoding/json decodes it.
func toAny(value any) (plain any, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &plain)
	return plain, err
}

// asWritten returns the fields of raw with the values of what a head writes for it.
func asWritten(raw, written any) any {
	switch raw := raw.(type) {
	case map[string]any:
		fields, _ := written.(map[string]any)
		out := map[string]any{}
		for key, value := range raw {
			if out[key] = nil; fields[key] != nil {
				out[key] = asWritten(value, fields[key])
			}
		}
		return out
	case []any:
		elements, _ := written.([]any)
		if len(elements) != len(raw) {
			break
		}
		out := make([]any, len(raw))
		for i := range raw {
			out[i] = asWritten(raw[i], elements[i])
		}
		return out
	}
	return written
}

// specText returns a spec as JSON.
func specText(spec map[string]any) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return string(text)
}
