package provider

import "reflect"

// isEqual reports whether two values of JSON are equal.
func isEqual(a, b any) bool { return reflect.DeepEqual(a, b) }

// restrict returns what a record has of the fields that a configuration sets.
func restrict(has, set any) any {
	switch set := set.(type) {
	case nil:
		if isZero(has) {
			return nil
		}
	case map[string]any:
		fields, ok := has.(map[string]any)
		if !ok && !isZero(has) {
			break
		}
		return restrictObject(fields, set)
	case []any:
		if elements, ok := has.([]any); ok && len(elements) == len(set) {
			return restrictList(elements, set)
		}
	}
	return has
}

func restrictObject(has, set map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range set {
		if there, ok := has[key]; ok || value == nil {
			out[key] = restrict(there, value)
		}
	}
	return out
}

func restrictList(has, set []any) []any {
	out := make([]any, len(set))
	for i := range set {
		out[i] = restrict(has[i], set[i])
	}
	return out
}

// isZero reports whether a head leaves a value out.
func isZero(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}

// overlay returns what a record has, with the fields that next sets, and without those that only former did. A list
// that did not change stays as it is, with what its elements have besides.
func overlay(has, former, next any) any {
	fields, isObject := next.(map[string]any)
	if !isObject {
		if isEqual(former, next) && isEqual(restrict(has, next), next) {
			return has
		}
		return withoutNil(next)
	}
	there, _ := has.(map[string]any)
	before, _ := former.(map[string]any)
	out := map[string]any{}
	for key, value := range there {
		if _, dropped := before[key]; !dropped {
			out[key] = value
		}
	}
	for key, value := range fields {
		if out[key] = overlay(there[key], before[key], value); out[key] == nil {
			delete(out, key)
		}
	}
	return out
}

// withoutNil returns a value without fields that a head leaves out.
func withoutNil(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, field := range value {
			if field != nil {
				out[key] = withoutNil(field)
			}
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i := range value {
			out[i] = withoutNil(value[i])
		}
		return out
	}
	return value
}

// mergeStrings is overlay of labels and annotations.
func mergeStrings(has, former, next map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range has {
		if _, dropped := former[key]; !dropped {
			out[key] = value
		}
	}
	for key, value := range next {
		out[key] = value
	}
	return out
}

// restrictStrings is restrict of labels and annotations.
func restrictStrings(has, set map[string]string) map[string]string {
	out := map[string]string{}
	for key := range set {
		if value, ok := has[key]; ok {
			out[key] = value
		}
	}
	return out
}
