package store

import (
	"reflect"
	"sync"
)

// deepCopy returns a copy of what v points to that shares no mutable memory with it. Structs whose fields are all
// unexported (time.Time, netip.Addr) are copied by assignment.
func deepCopy[P any](v P) P {
	from := reflect.ValueOf(v)
	if from.Kind() != reflect.Pointer || from.IsNil() {
		return v
	}
	to := reflect.New(from.Type().Elem())
	to.Elem().Set(from.Elem())
	if c := copierOf(from.Type().Elem()); c != nil {
		c(to.Elem())
	}
	return to.Interface().(P)
}

// copier turns a shallow copy into a deep one.
type copier func(v reflect.Value)

var copiers sync.Map // reflect.Type to copier

// copierOf returns the copier of a type, or nil if a shallow copy is enough.
func copierOf(t reflect.Type) copier {
	if c, ok := copiers.Load(t); ok {
		return c.(copier)
	}
	c := copierMaker{}.make(t)
	copiers.Store(t, c)
	return c
}

// copierMaker holds the copiers under construction, since a type may contain itself.
type copierMaker map[reflect.Type]*copier

func (m copierMaker) make(t reflect.Type) copier {
	if c, ok := m[t]; ok {
		return func(v reflect.Value) {
			if *c != nil {
				(*c)(v)
			}
		}
	}
	c := new(copier)
	m[t] = c
	switch t.Kind() {
	case reflect.Pointer:
		*c = m.pointer(t)
	case reflect.Slice:
		*c = m.slice(t)
	case reflect.Map:
		*c = m.mapping(t)
	case reflect.Struct:
		*c = m.structure(t)
	case reflect.Interface:
		*c = copyInterface
	}
	return *c
}

func (m copierMaker) pointer(t reflect.Type) copier {
	elem := m.make(t.Elem())
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		to := reflect.New(t.Elem())
		to.Elem().Set(v.Elem())
		if elem != nil {
			elem(to.Elem())
		}
		v.Set(to)
	}
}

func (m copierMaker) slice(t reflect.Type) copier {
	elem := m.make(t.Elem())
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		to := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(to, v)
		if elem != nil {
			for i := range v.Len() {
				elem(to.Index(i))
			}
		}
		v.Set(to)
	}
}

func (m copierMaker) mapping(t reflect.Type) copier {
	elem := m.make(t.Elem())
	return func(v reflect.Value) {
		if v.IsNil() {
			return
		}
		to := reflect.MakeMapWithSize(t, v.Len())
		for it := v.MapRange(); it.Next(); {
			value := it.Value()
			if elem != nil {
				own := reflect.New(t.Elem()).Elem()
				own.Set(value)
				elem(own)
				value = own
			}
			to.SetMapIndex(it.Key(), value)
		}
		v.Set(to)
	}
}

func (m copierMaker) structure(t reflect.Type) copier {
	type part struct {
		field int
		copy  copier
	}
	var parts []part
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			if c := m.make(f.Type); c != nil {
				parts = append(parts, part{i, c})
			}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return func(v reflect.Value) {
		for _, p := range parts {
			p.copy(v.Field(p.field))
		}
	}
}

// copyInterface copies the values that JSON decodes into an any: maps, slices and scalars.
func copyInterface(v reflect.Value) {
	if v.IsNil() {
		return
	}
	c := copierOf(v.Elem().Type())
	if c == nil {
		return
	}
	own := reflect.New(v.Elem().Type()).Elem()
	own.Set(v.Elem())
	c(own)
	v.Set(own)
}
