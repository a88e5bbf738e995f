// Package docsgen writes the pages of docs/reference from the code: records and event reasons from the root package,
// actions from internal/actionspec, metrics from the calls that create them, and commands from cobra. Tests compare the
// pages with what is committed (see [Check]); `make docs` writes them, and what trivet explain shows
// (internal/reference). No program imports this package.
package docsgen

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// source holds the comments of one Go package.
type source struct {
	types  map[string]string            // by type
	fields map[string]map[string]string // by type and field
	consts map[string][]named           // by type, in their order; "" has the untyped ones
	bounds map[string]string            // the values of all constants, as people write them

	structs   map[string]*ast.StructType // by type
	described map[string]bool            // the types of which document has the fields
}

// named is a constant that is a text.
type named struct {
	name, value, doc string
}

// parsePackage reads the files of one directory, without its tests.
func parsePackage(dir string) (*source, error) {
	files, err := parseFiles(dir)
	if err != nil {
		return nil, err
	}
	s := &source{types: map[string]string{}, fields: map[string]map[string]string{}, consts: map[string][]named{},
		bounds: map[string]string{}, structs: map[string]*ast.StructType{}, described: map[string]bool{}}
	for _, f := range files {
		for _, decl := range f.Decls {
			if d, ok := decl.(*ast.GenDecl); ok {
				s.add(d)
			}
		}
	}
	return s, nil
}

func parseFiles(dir string) (files []*ast.File, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, cmpErr(err, fs.ErrNotExist))
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func (s *source) add(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			s.types[spec.Name.Name] = comment(spec.Doc, spec.Comment, only(d))
			if t, ok := spec.Type.(*ast.StructType); ok {
				s.structs[spec.Name.Name], s.fields[spec.Name.Name] = t, fieldComments(t)
			}
		case *ast.ValueSpec:
			s.addConstant(d, spec)
		}
	}
}

// only returns the comment of a declaration that declares one thing: it is that thing's.
func only(d *ast.GenDecl) *ast.CommentGroup {
	if len(d.Specs) > 1 {
		return nil
	}
	return d.Doc
}

func (s *source) addConstant(d *ast.GenDecl, spec *ast.ValueSpec) {
	if d.Tok != token.CONST || len(spec.Values) == 0 {
		return
	}
	s.addBound(spec)
	lit, ok := spec.Values[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return
	}
	value, _ := strconv.Unquote(lit.Value)
	typeName := ""
	if t, ok := spec.Type.(*ast.Ident); ok {
		typeName = t.Name
	}
	s.consts[typeName] = append(s.consts[typeName],
		named{name: spec.Names[0].Name, value: value, doc: comment(spec.Doc, spec.Comment, only(d))})
}

// docOf returns the comment of the constant that names a boot step. Others may have the same value.
func (s *source) docOf(step string) string {
	for _, c := range s.consts[""] {
		if c.value == step && strings.HasPrefix(c.name, "Step") {
			return c.doc
		}
	}
	return ""
}

func fieldComments(t *ast.StructType) map[string]string {
	all := map[string]string{}
	for _, f := range t.Fields.List {
		for _, name := range f.Names {
			all[name.Name] = comment(f.Doc, f.Comment)
		}
	}
	return all
}

// comment returns the text of all groups as one line of sentences: what is above a thing, then what is behind it.
func comment(groups ...*ast.CommentGroup) string {
	var parts []string
	for _, g := range groups {
		if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	for i := range parts {
		parts[i] = sentence(parts[i])
	}
	return strings.Join(parts, " ")
}

// field returns the comment of a field.
func (s *source) field(in reflect.Type, f reflect.StructField) string {
	return s.fields[in.Name()][f.Name]
}

var docLink = regexp.MustCompile(`\[\*?([A-Za-z]\w*(?:\.\w+)*)\]`)

// text makes a comment fit for Markdown, in a table too.
func text(doc string) string { return escape(links(doc)) }

// links writes the names that a comment links to as code.
func links(doc string) string { return docLink.ReplaceAllString(doc, "`$1`") }

func escape(doc string) string { return strings.NewReplacer("|", `\|`, "<", `\<`).Replace(doc) }

// sentence ends a text with a full stop and begins it with a capital letter.
func sentence(doc string) string {
	if doc == "" {
		return ""
	}
	if !strings.HasSuffix(doc, ".") {
		doc += "."
	}
	return strings.ToUpper(doc[:1]) + doc[1:]
}
