package store

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/trivet-project/trivet"
)

// asDecoded makes a record, which its caller owns, equal to what decoding its JSON returns: lists that are omitted are
// nil, and times have no monotonic reading. It is false, and the record must not be used any more, where it cannot: for
// texts that are not UTF-8, for numbers in values of no type that are not as JSON has them, and for types that it does
// not know.
func asDecoded(rec trivet.Record) bool {
	v := reflect.ValueOf(rec)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return false
	}
	change := decoderOf(v.Type().Elem())
	return change == nil || change(v.Elem())
}

// decoder changes a value to what decoding its JSON returns. It is false where it cannot.
type decoder func(v reflect.Value) bool

var decoders sync.Map // reflect.Type to decoder

// decoderOf returns the decoder of a type, or nil if all of its values are as they would be decoded.
func decoderOf(t reflect.Type) decoder {
	if d, ok := decoders.Load(t); ok {
		return d.(decoder)
	}
	d := decoderMaker{}.make(t)
	decoders.Store(t, d)
	return d
}

// decoderMaker holds the decoders under construction, since a type may contain itself.
type decoderMaker map[reflect.Type]*decoder

func (m decoderMaker) make(t reflect.Type) decoder {
	if d, ok := m[t]; ok {
		return func(v reflect.Value) bool { return *d == nil || (*d)(v) }
	}
	d := new(decoder)
	m[t] = d
	*d = m.of(t)
	return *d
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[trivet.Duration]()
	textType     = reflect.TypeFor[encoding.TextMarshaler]()
	jsonWriter   = reflect.TypeFor[json.Marshaler]()
)

func (m decoderMaker) of(t reflect.Type) decoder {
	switch {
	case t == timeType:
		return decodedTime
	case t == durationType:
		return func(v reflect.Value) bool { return v.Int() >= 0 }
	case reflect.PointerTo(t).Implements(jsonReader) || reflect.PointerTo(t).Implements(jsonWriter):
		return unknownType
	case reflect.PointerTo(t).Implements(textReader) || reflect.PointerTo(t).Implements(textType):
		return decodedText
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return nil
	case reflect.String:
		return func(v reflect.Value) bool { return utf8.ValidString(v.String()) }
	case reflect.Pointer:
		return m.pointer(t)
	case reflect.Slice:
		return m.slice(t)
	case reflect.Map:
		return m.mapping(t)
	case reflect.Struct:
		return m.structure(t)
	case reflect.Interface:
		return func(v reflect.Value) bool { return isDecodedAny(v.Interface()) }
	}
	return unknownType
}

func unknownType(reflect.Value) bool { return false }

// decodedTime removes what JSON does not have. It does not know other locations than UTC and the local one.
func decodedTime(v reflect.Value) bool {
	t := v.Addr().Interface().(*time.Time)
	*t = t.Round(0)
	if _, offset := t.Zone(); offset == 0 {
		*t = t.UTC()
		return true
	}
	return t.Location() == time.Local
}

// decodedText is for a type that writes itself as a text. Most are short.
func decodedText(v reflect.Value) bool {
	w, ok := v.Interface().(encoding.TextMarshaler)
	if !ok {
		return false
	}
	text, err := w.MarshalText()
	if err != nil {
		return false
	}
	again := reflect.New(v.Type())
	r, ok := again.Interface().(encoding.TextUnmarshaler)
	return ok && r.UnmarshalText(text) == nil && reflect.DeepEqual(again.Elem().Interface(), v.Interface())
}

func (m decoderMaker) pointer(t reflect.Type) decoder {
	switch t.Elem().Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface: // may be null in JSON, as the pointer
		return func(v reflect.Value) bool { return v.IsNil() }
	}
	elem := m.make(t.Elem())
	if elem == nil {
		return nil
	}
	return func(v reflect.Value) bool { return v.IsNil() || elem(v.Elem()) }
}

func (m decoderMaker) slice(t reflect.Type) decoder {
	elem := m.make(t.Elem())
	if elem == nil {
		return nil
	}
	return func(v reflect.Value) bool {
		for i := range v.Len() {
			if !elem(v.Index(i)) {
				return false
			}
		}
		return true
	}
}

func (m decoderMaker) mapping(t reflect.Type) decoder {
	if t.Key().Kind() != reflect.String || unmarshalsItself(t.Key()) || t.Key().Implements(textType) {
		return func(v reflect.Value) bool { return v.IsNil() }
	}
	elem := m.make(t.Elem())
	return func(v reflect.Value) bool {
		for it := v.MapRange(); it.Next(); {
			if !utf8.ValidString(it.Key().String()) {
				return false
			}
			if elem == nil {
				continue
			}
			own := reflect.New(t.Elem()).Elem()
			own.Set(it.Value())
			if !elem(own) {
				return false
			}
			v.SetMapIndex(it.Key(), own)
		}
		return true
	}
}

// structure is for a struct whose fields are all exported, none of them with an option that changes how it is written.
func (m decoderMaker) structure(t reflect.Type) decoder {
	type part struct {
		field   int
		change  decoder
		omitted func(v reflect.Value) bool // nil: never
	}
	var parts []part
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && f.Type.Kind() != reflect.Struct {
			return unknownType
		}
		p := part{field: i, change: m.make(f.Type)}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "", "inline":
			case "omitempty":
				p.omitted = isEmpty
			case "omitzero":
				p.omitted = zeroOf(f.Type)
			default:
				return unknownType
			}
		}
		if p.change != nil || p.omitted != nil && (f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map) {
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return func(v reflect.Value) bool {
		for _, p := range parts {
			f := v.Field(p.field)
			if p.omitted != nil && p.omitted(f) {
				f.SetZero()
			} else if p.change != nil && !p.change(f) {
				return false
			}
		}
		return true
	}
}

// isEmpty reports whether the option omitempty omits a value.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// zeroer is a type that says itself which of its values are omitted.
type zeroer interface{ IsZero() bool }

// zeroOf returns what reports whether the option omitzero omits a value of a type.
func zeroOf(t reflect.Type) func(v reflect.Value) bool {
	switch {
	case t.Implements(reflect.TypeFor[zeroer]()):
		isNil := reflect.Value.IsZero
		if t.Kind() != reflect.Pointer {
			isNil = func(reflect.Value) bool { return false }
		}
		return func(v reflect.Value) bool { return isNil(v) || v.Interface().(zeroer).IsZero() }
	case reflect.PointerTo(t).Implements(reflect.TypeFor[zeroer]()):
		return func(v reflect.Value) bool { return v.Addr().Interface().(zeroer).IsZero() }
	}
	return reflect.Value.IsZero
}

// isDecodedAny reports whether a value of no type is one that JSON decodes into it.
func isDecodedAny(v any) bool {
	switch v := v.(type) {
	case nil, bool, float64:
		return true
	case string:
		return utf8.ValidString(v)
	case []any:
		for _, e := range v {
			if !isDecodedAny(e) {
				return false
			}
		}
		return v != nil
	case map[string]any:
		for k, e := range v {
			if !utf8.ValidString(k) || !isDecodedAny(e) {
				return false
			}
		}
		return v != nil
	}
	return false
}
