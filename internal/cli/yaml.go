package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// Limits of one document: a few lines of aliases could otherwise expand to any size.
const (
	maxNodes  = 100_000
	maxTokens = 4 * maxNodes // of all documents in a file
	maxDepth  = 64
	maxPath   = 1024      // bytes of the path of a value
	maxTexts  = 16 << 20  // bytes of all strings, with aliases expanded
	maxPaths  = 256 << 20 // bytes of the paths that the parser allocates
)

// document is one YAML document converted to JSON values, with the position of each.
type document struct {
	value any
	at    map[string]position // by path
	lines []string            // of the whole file
	file  string
}

type position struct{ line, column int }

// placed is an error with its position in a file.
type placed struct {
	file    string
	at      position
	problem string
	lines   []string
}

// Error returns the position, as compilers print it, and the line.
func (e *placed) Error() string {
	s := fmt.Sprintf("%s:%d:%d: %s", e.file, e.at.line, e.at.column, e.problem)
	if e.at.line < 1 || e.at.line > len(e.lines) {
		return s
	}
	line := strings.ReplaceAll(e.lines[e.at.line-1], "\t", " ")
	if len(line) > 160 {
		return s
	}
	number := strconv.Itoa(e.at.line)
	return fmt.Sprintf("%s\n  %s | %s\n  %s | %s^", s, number, line, strings.Repeat(" ", len(number)),
		strings.Repeat(" ", max(e.at.column-1, 0)))
}

// Is makes every placed error an ErrInvalid.
func (e *placed) Is(target error) bool { return target == trivet.ErrInvalid }

// hasSecret matches a file with a secret, whose values may be in any line that cannot be parsed.
var hasSecret = regexp.MustCompile(`(?i)["']?kind["']?\s*:\s*["']?secret\b`)

// parseYAML parses all documents of a file. JSON is YAML, too.
func parseYAML(file string, text []byte) ([]*document, error) {
	lines := strings.Split(string(text), "\n")
	printed := lines
	if hasSecret.Match(text) {
		printed = nil
	}
	tokens := lexer.Tokenize(string(text))
	if t := tooMuch(tokens); t != nil {
		return nil, &placed{file, placeOf(t), "the document is too large or nested too deeply", printed}
	}
	parsed, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, place(file, printed, err)
	}
	var docs []*document
	for _, d := range parsed.Docs {
		if d.Body == nil || d.Body.Type() == ast.NullType || d.Body.Type() == ast.CommentType {
			continue
		}
		doc := &document{at: map[string]position{}, lines: printed, file: file}
		c := &converter{doc: doc, anchors: map[string]ast.Node{}}
		if doc.value, err = c.convert("", d.Body, 0); err != nil {
			return nil, err
		}
		doc.lines = lines // see printed
		docs = append(docs, doc)
	}
	return docs, nil
}

// tooMuch returns the token at which a file exceeds the limits, or nil. It runs before the parser, whose time grows
// with the square of the depth.
func tooMuch(tokens token.Tokens) *token.Token {
	flow := 0 // open lists and objects in brackets
	longest, paths := 1, 0
	var columns []int // columns of the enclosing blocks
	for i, t := range tokens {
		switch t.Type {
		case token.DocumentHeaderType, token.DocumentEndType:
			flow, columns = 0, nil
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			at := t.Position.Column
			if t.Type == token.MappingValueType && i > 0 { // a block begins with its key
				at = tokens[i-1].Position.Column
				longest = max(longest, len(tokens[i-1].Value))
			}
			if flow > 0 {
				break
			}
			for len(columns) > 0 && columns[len(columns)-1] >= at {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, at)
		}
		paths += longest * (flow + len(columns))
		if i > maxTokens || flow+len(columns) > maxDepth || paths > maxPaths {
			return t
		}
	}
	return nil
}

// place returns a parser's error with its position.
func place(file string, lines []string, err error) error {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil || at.GetToken().Position == nil {
		return fmt.Errorf("%s: %w: %w", file, trivet.ErrInvalid, err)
	}
	problem := at.GetMessage()
	for _, h := range syntaxHints {
		if strings.Contains(problem, h.problem) {
			problem += "; " + h.write
		}
	}
	return &placed{file, placeOf(at.GetToken()), problem, lines}
}

// syntaxHints is what to write, by a part of what the parser reports.
var syntaxHints = []struct{ problem, write string }{
	{"character '\t'", "indent with spaces, not tabs"},
	{"non-map value", "write KEY: VALUE, with a space after the colon"},
	{"value is not allowed in this context", "indent it as the lines that it belongs to"},
	{"could not find flow map content", "put a text that begins with { in quotes"},
	{"invalid header option", "put a text that begins with > or | in quotes, and remove what git writes at a conflict"},
}

func placeOf(t *token.Token) position { return position{t.Position.Line, t.Position.Column} }

// converter converts YAML nodes to JSON values.
type converter struct {
	doc     *document
	anchors map[string]ast.Node
	nodes   int
	texts   int // bytes
}

func (c *converter) fail(n ast.Node, format string, args ...any) error {
	return &placed{c.doc.file, placeOf(n.GetToken()), fmt.Sprintf(format, args...), c.doc.lines}
}

func (c *converter) convert(path string, n ast.Node, depth int) (any, error) {
	if c.nodes++; c.nodes > maxNodes || depth > maxDepth || len(path) > maxPath || c.texts > maxTexts {
		return nil, c.fail(n, "the document is too large or nested too deeply")
	}
	if _, known := c.doc.at[path]; !known && n.GetToken() != nil && n.Type() != ast.MappingType {
		c.doc.at[path] = placeOf(n.GetToken())
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return c.mapping(path, n.Values, depth)
	case *ast.MappingValueNode:
		return c.mapping(path, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		list := []any{}
		for i, item := range n.Values {
			v, err := c.convert(fmt.Sprintf("%s[%d]", path, i), item, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case *ast.AnchorNode:
		c.anchors[n.Name.GetToken().Value] = n.Value
		return c.convert(path, n.Value, depth+1)
	case *ast.AliasNode:
		target, ok := c.anchors[n.Value.GetToken().Value]
		if !ok {
			return nil, c.fail(n, "the anchor of this alias is not defined; put a text that begins with * in quotes")
		}
		return c.convert(path, target, depth+1)
	}
	return c.scalar(n)
}

func (c *converter) scalar(n ast.Node) (any, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		c.texts += len(n.Value)
		return n.Value, nil
	case *ast.LiteralNode:
		c.texts += len(n.Value.Value)
		return n.Value.Value, nil
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.NullNode:
		return nil, nil
	case *ast.IntegerNode:
		return json.Number(fmt.Sprint(n.Value)), nil
	case *ast.FloatNode:
		return json.Number(strconv.FormatFloat(n.Value, 'g', -1, 64)), nil
	}
	return nil, c.fail(n, "%s is not supported here", strings.ToLower(n.Type().String()))
}

func (c *converter) mapping(path string, pairs []*ast.MappingValueNode, depth int) (any, error) {
	object := map[string]any{}
	if _, known := c.doc.at[path]; !known && len(pairs) > 0 { // an element of a list
		c.doc.at[path] = placeOf(pairs[0].Key.GetToken())
	}
	for _, pair := range pairs {
		if pair.Key.IsMergeKey() {
			return nil, c.fail(pair.Key, "merge keys (<<) are not supported; write the properties out")
		}
		key := pair.Key.GetToken().Value
		at := apitypes.Join(path, key)
		c.doc.at[at] = placeOf(pair.Key.GetToken())
		v, err := c.convert(at, pair.Value, depth+1)
		if err != nil {
			return nil, err
		}
		object[key] = v
	}
	return object, nil
}

// printed returns the lines that errors print: none of a secret, as its values may be in them.
func (d *document) printed() []string {
	if object, ok := d.value.(map[string]any); ok && object["kind"] == "Secret" {
		return nil
	}
	return d.lines
}

// locate returns the FieldErrors in err with the position of the field or its nearest parent, in the order of the file.
func (d *document) locate(err error) error {
	var found []*placed
	for _, fe := range apitypes.FieldErrors(err) {
		found = append(found, &placed{d.file, d.find(fe.Field), fe.Error(), d.printed()})
	}
	if len(found) == 0 {
		return err
	}
	slices.SortStableFunc(found, func(a, b *placed) int {
		return cmp.Or(a.at.line-b.at.line, a.at.column-b.at.column)
	})
	var errs []error
	for _, p := range found {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// fieldName matches how messages name a field.
var fieldName = regexp.MustCompile(`\b(spec|labels)\.[A-Za-z0-9_.\[\]]*[A-Za-z0-9\]]`)

// refused returns an error of the head with a position in the file: that of its fields, or of the one that its message
// names, or of the record.
func (d *document) refused(err error) error {
	var p *trivet.Problem
	if len(apitypes.FieldErrors(err)) > 0 || !errors.As(err, &p) {
		if hint := hintOf(err); hint != "" {
			return &hinted{d.locate(err), hint}
		}
		return d.locate(err)
	}
	at := d.find(cmp.Or(fieldName.FindString(p.Message), "name"))
	return fmt.Errorf("%s:%d:%d: %w", d.file, at.line, at.column, err)
}

func (d *document) find(path string) position {
	for {
		if at, ok := d.at[path]; ok {
			return at
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			break
		}
		path = path[:cut]
	}
	for _, name := range []string{"kind", "spec", ""} {
		if at, ok := d.at[name]; ok {
			return at
		}
	}
	return position{1, 1}
}
