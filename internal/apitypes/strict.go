package apitypes

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/trivet-project/trivet"
)

// maxDepth bounds how deep JSON from people may be nested.
const maxDepth = 64

// maxPath bounds the path of a value, in bytes. Every value's path is built, so the cost of one long name with a
// long list below it would be their product.
const maxPath = 1024

// DecodeStrict decodes a record that a person wrote: unknown properties, duplicate properties and wrong types are
// errors, each with its path. It is not for programs that must keep unknown properties.
func DecodeStrict(data []byte, into any) error {
	v, err := Parse(data)
	if err != nil {
		return err
	}
	if err := Check(v, reflect.TypeOf(into)); err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	return nil
}

// Parse parses one JSON value and refuses duplicate properties. Numbers are json.Number.
func Parse(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := parse(dec, "", 0)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = fmt.Errorf("%w: more than one JSON value", trivet.ErrInvalid)
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, trivet.ErrInvalid) {
		err = fmt.Errorf("%w: not JSON, at byte %d: %w", trivet.ErrInvalid, dec.InputOffset(), err)
	}
	return v, err
}

func parse(dec *json.Decoder, path string, depth int) (any, error) {
	if depth > maxDepth || len(path) > maxPath {
		return nil, &trivet.FieldError{Field: Brief(path), Problem: "is nested too deep, or has too long a name"}
	}
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return parseObject(dec, path, depth)
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := parse(dec, fmt.Sprintf("%s[%d]", path, len(list)), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	}
	return token, nil
}

func parseObject(dec *json.Decoder, path string, depth int) (any, error) {
	object := map[string]any{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key := token.(string) // the decoder allows nothing else here
		at := Join(path, key)
		if _, twice := object[key]; twice {
			return nil, &trivet.FieldError{Field: at, Problem: "appears twice"}
		}
		if object[key], err = parse(dec, at, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return object, err
}

// Join returns the path of a property.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Check compares a result of Parse with the type that it will be decoded into, and returns every property that is
// unknown or has the wrong type.
func Check(v any, t reflect.Type) error { return CheckEdit(nil, v, t) }

// CheckEdit is Check of what was edited. What Check finds before the edit, such as the properties of a newer release,
// is permitted, also in another element of its list.
func CheckEdit(before, after any, t reflect.Type) error {
	permitted := map[trivet.FieldError]bool{}
	was := checker{t, func(fe trivet.FieldError) { permitted[inAnyElement(fe)] = true }, func() bool { return false }}
	was.check("", before, t)
	var errs []error
	now := checker{t, func(fe trivet.FieldError) {
		if len(errs) < maxFields && !permitted[inAnyElement(fe)] {
			errs = append(errs, &fe)
		}
	}, func() bool { return len(errs) >= maxFields }}
	now.check("", after, t)
	return errors.Join(errs...)
}

var elementIndex = regexp.MustCompile(`\[\d+\]`)

// InAnyElement returns a text without the indices of the paths in it, so that it is the same for all elements of a list.
func InAnyElement(text string) string { return elementIndex.ReplaceAllString(text, "[]") }

// inAnyElement returns a FieldError without the indices of its path.
func inAnyElement(fe trivet.FieldError) trivet.FieldError {
	fe.Field = InAnyElement(fe.Field)
	return fe
}

type checker struct {
	root  reflect.Type
	found func(trivet.FieldError)
	full  func() bool // no more is listed
}

func (c *checker) add(path, format string, args ...any) {
	if path == "" {
		path = "record"
	}
	c.found(trivet.FieldError{Field: path, Problem: fmt.Sprintf(format, args...)})
}

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

func (c *checker) check(path string, v any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil || t.Kind() == reflect.Interface {
		return
	}
	if reflect.PointerTo(t).Implements(textType) {
		c.text(path, v, t)
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		c.object(path, v, t)
	case reflect.Map:
		if object, ok := c.want(path, v, "an object").(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(object)) {
				c.check(Join(path, key), object[key], t.Elem())
			}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 { // base64
			c.want(path, v, "a text")
		} else if list, ok := c.want(path, v, "a list").([]any); ok {
			for i := range list {
				c.check(fmt.Sprintf("%s[%d]", path, i), list[i], t.Elem())
			}
		}
	case reflect.String:
		c.want(path, v, "a text")
	case reflect.Bool:
		c.want(path, v, "true or false")
	default:
		c.number(path, v, t)
	}
}

// want returns v if it has the form, and adds an error if not.
func (c *checker) want(path string, v any, form string) any {
	if got := formOf(v); got != form {
		c.add(path, "must be %s, not %s%s", form, got, quoteHint(form, v))
		return nil
	}
	return v
}

func formOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case nil:
		return "null"
	}
	return "a number"
}

// text checks a type that is decoded from text, such as a duration or an address.
func (c *checker) text(path string, v any, t reflect.Type) {
	s, ok := c.want(path, v, "a text").(string)
	if !ok {
		return
	}
	if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)); err != nil {
		c.add(path, "%s", textProblem(t, s, err))
	}
}

func (c *checker) number(path string, v any, t reflect.Type) {
	if c.want(path, v, "a number") == nil {
		return
	}
	if err := json.Unmarshal(fmt.Append(nil, v), reflect.New(t).Interface()); err != nil {
		c.add(path, "%v must be a whole number that fits", v)
	}
}

func (c *checker) object(path string, v any, t reflect.Type) {
	object, ok := c.want(path, v, "an object").(map[string]any)
	if !ok {
		return
	}
	known := Properties(t)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if field, ok := known[key]; ok {
			c.check(Join(path, key), object[key], field.Type)
			continue
		}
		if c.full() { // no one reads what a suggestion costs
			return
		}
		c.add(Join(path, key), "is not known%s", c.suggest(path, key, known))
	}
}

// quoteHint is the hint for a YAML value that is a number or bool instead of a text.
func quoteHint(form string, v any) string {
	switch v.(type) {
	case json.Number, bool:
		if form == "a text" {
			return "; put it in quotes"
		}
	}
	return ""
}
