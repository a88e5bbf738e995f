package docsgen

import (
	"go/ast"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reference"
)

// allTypes describes the structs of the root package by their names. Those that are in no record have their fields.
func (s *source) allTypes() (all []reference.Field) {
	for _, name := range slices.Sorted(maps.Keys(s.structs)) {
		if !ast.IsExported(name) || isKind(name) {
			continue
		}
		d := reference.Field{Name: name, Description: s.withBounds(links(s.types[name]))}
		if !s.described[name] {
			d.Fields = s.structFields(s.structs[name])
		}
		if d.Description != "" || d.Fields != nil {
			all = append(all, d)
		}
	}
	return all
}

// isKind reports whether a type is that of a kind's records, which has its name.
func isKind(name string) bool {
	return slices.ContainsFunc(trivet.Kinds, func(k trivet.KindInfo) bool { return string(k.Kind) == name })
}

// structFields describes the fields of a struct that are in JSON, those of embedded structs where they are embedded.
func (s *source) structFields(t *ast.StructType) (all []reference.Field) {
	for _, f := range t.Fields.List {
		of := elementName(f.Type)
		if len(f.Names) == 0 && s.structs[of] != nil {
			all = append(all, s.structFields(s.structs[of])...)
		}
		if name := tagName(f.Tag); name != "" {
			all = append(all, s.describeField(name, of, comment(f.Doc, f.Comment)))
		}
	}
	return all
}

// describeField describes a field by its comment, or its type's where it has none.
func (s *source) describeField(name, of, doc string) reference.Field {
	if doc == "" && s.structs[of] != nil {
		doc = s.types[of]
	}
	return reference.Field{Name: name, Description: s.withBounds(links(doc)), Values: s.values(of)}
}

// values are those that a text of a type of the root package may have. A release has others than those that the package
// names.
func (s *source) values(of string) (all []reference.Value) {
	if of == "" || of == "Release" {
		return nil
	}
	for _, c := range s.consts[of] {
		all = append(all, reference.Value{Value: c.value, Description: links(c.doc)})
	}
	return all
}

// elementName is the name of what a field holds one or many of, if that is a type of the package.
func elementName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return elementName(e.X)
	case *ast.ArrayType:
		return elementName(e.Elt)
	case *ast.MapType:
		return elementName(e.Value)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// tagName is the name of a field in JSON; empty: it has none there.
func tagName(tag *ast.BasicLit) string {
	if tag == nil {
		return ""
	}
	text, _ := strconv.Unquote(tag.Value)
	return jsonName(reflect.StructField{Tag: reflect.StructTag(text)})
}
