package store

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
)

// fill fills a value with what a program may put into it: also empty lists, times with a monotonic reading and in the
// local zone, and values of no type.
func fill(t *rapid.T, v reflect.Value, depth int) {
	one := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, v.Type().String()) }
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = []time.Time{{}, time.Now(), time.Now().UTC(), time.Unix(1e9, 5), time.Now().In(time.FixedZone("X", 3600)),
			time.Time{}.Local(), time.Now().In(time.FixedZone("", 0))}[one(7)]
		return
	case *trivet.Duration:
		*p = trivet.Duration(rapid.Int64Range(-5, 1e15).Draw(t, "duration"))
		return
	case *trivet.ByteSize:
		*p = []trivet.ByteSize{0, 1, 1 << 30, 4e11, 12345}[one(5)]
		return
	case *netip.Addr:
		*p = []netip.Addr{{}, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.1"),
			netip.MustParseAddr("fe80::1%eth0")}[one(4)]
		return
	case *netip.Prefix:
		*p = []netip.Prefix{{}, netip.MustParsePrefix("10.0.0.0/24")}[one(2)]
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(one(2) == 1)
	case reflect.String:
		v.SetString([]string{"", "a", "<&>\u2028\t\"", "é", "10s", "\xff"}[one(101)/20]) // which is not accepted
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(one(3)) - 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(one(3)))
	case reflect.Float64:
		v.SetFloat(float64(one(3)) / 3)
	case reflect.Pointer:
		if one(2) == 1 && depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if n := one(4); n > 0 && depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
			for i := range v.Len() {
				fill(t, v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if n := one(4); n > 0 && depth > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n - 1 {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(t, key, 1)
				fill(t, value, depth-1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i), depth)
			}
		}
	case reflect.Interface:
		if x := []any{nil, true, "s", 1.5, []any{"a", nil}, []any{}, map[string]any{"k": 1.0}, []string{"a"},
			map[string]any{"k": 3}, []any(nil), int64(1)}[one(22)/2]; x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		t.Fatalf("a record has a field of type %s", v.Type())
	}
}

// filled fills a value with one that a program has usually: no field is zero, no text is invalid.
func filled(t *testing.T, v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		*p = time.Now()
		return
	case *netip.Addr:
		*p = netip.MustParseAddr("10.0.0.1")
		return
	case *netip.Prefix:
		*p = netip.MustParsePrefix("10.0.0.0/24")
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("é<&>")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			filled(t, v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			filled(t, v.Index(0), depth-1)
		}
	case reflect.Map:
		if depth > 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			filled(t, key, 1)
			filled(t, value, depth-1)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				filled(t, v.Field(i), depth)
			}
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf("s"))
	default:
		t.Fatalf("a record has a field of type %s", v.Type())
	}
}

// A record of each kind as programs write it is accepted, with all of its fields and with none, and is as it would be
// decoded.
func TestUsualRecordsAreAsDecoded(t *testing.T) {
	for _, kind := range trivet.Kinds {
		whole, empty := kind.New(), kind.New()
		filled(t, reflect.ValueOf(whole).Elem(), 6)
		empty.Header().Created = time.Now()
		for _, rec := range []trivet.Record{whole, empty} {
			rec.Header().Revision = 0
			doc, err := json.Marshal(rec)
			if err != nil {
				t.Errorf("%s: %v", kind.Kind, err)
				continue
			}
			if !asDecoded(rec) {
				t.Errorf("a record of kind %s is not accepted: %s", kind.Kind, doc)
				continue
			}
			decoded, unknown, err := decode(&kindInfo{kind: kind.Kind, new: kind.New}, doc)
			if err != nil || unknown || !reflect.DeepEqual(rec, decoded) {
				t.Errorf("%s\nis decoded to   %#v\nand changed to  %#v: %v", doc, decoded, rec, err)
			}
		}
	}
}

// What asDecoded accepts is what decoding returns, for all kinds.
func TestAsDecoded(t *testing.T) {
	for _, kind := range trivet.Kinds {
		info := &kindInfo{kind: kind.Kind, new: kind.New}
		rapid.Check(t, func(t *rapid.T) {
			rec := kind.New()
			fill(t, reflect.ValueOf(rec).Elem(), 4)
			rec.Header().Revision = 0
			doc, err := json.Marshal(rec)
			if err != nil {
				return
			}
			text := fmt.Sprintf("%#v", rec)
			if !asDecoded(rec) {
				return
			}
			decoded, unknown, err := decode(info, doc)
			if err != nil || unknown || !reflect.DeepEqual(rec, decoded) {
				t.Fatalf("%s\nis decoded to   %#v\nand changed to  %#v: %v", text, decoded, rec, err)
			}
		})
	}
}

// textOrNone is a type whose values say themselves whether they are omitted, as time.Time does.
type textOrNone string

func (t textOrNone) IsZero() bool { return t == "" || t == "none" }

// A field with the option omitzero is omitted as encoding/json omits it, also a pointer whose type asks the value.
func TestOmittedAsJSONDoes(t *testing.T) {
	type fields struct {
		Value   textOrNone  `json:"value,omitzero"`
		Pointer *textOrNone `json:"pointer,omitzero"`
	}
	none, some := textOrNone("none"), textOrNone("some")
	for _, f := range []fields{{}, {none, &none}, {some, &some}} {
		doc, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var want fields
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(&f).Elem()
		if change := decoderOf(v.Type()); !change(v) || !reflect.DeepEqual(f, want) {
			t.Errorf("%s: changed to %+v, decoded to %+v", doc, f, want)
		}
	}
}
