package docsgen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// part is what a key of a mapping of YAML has, or an element of a list, and where it is. Lines are counted from 0.
type part struct {
	key    string // empty: an element
	value  string // of a scalar
	isList bool
	parts  []*part
	// flow: it is within braces or brackets.
	flow   bool
	line   int // that of the key, or of the dash of an element
	indent int
	first  int // the first of the comments above it, or line
	last   int
}

// part returns the one of a key, or nil.
func (p *part) part(key string) *part {
	i := slices.IndexFunc(p.parts, func(below *part) bool { return below.key == key })
	if i < 0 {
		return nil
	}
	return p.parts[i]
}

// text returns the scalar of a key; empty: there is none.
func (p *part) text(key string) string {
	if below := p.part(key); below != nil {
		return below.value
	}
	return ""
}

// parseExample reads one document of YAML.
func parseExample(text string) (*example, error) {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) != 1 {
		return nil, fmt.Errorf("%d documents between two lines ---", len(file.Docs))
	}
	top := &part{}
	top.add(file.Docs[0].Body, false)
	e := &example{kind: top.text("kind"), lines: strings.Split(strings.TrimRight(text, "\n"), "\n"), parts: top.parts}
	if len(e.parts) == 0 || e.kind == "" {
		return nil, fmt.Errorf("a document has no kind")
	}
	e.bound(e.parts, len(e.lines)-1)
	return e, nil
}

// add adds what a node has below p.
func (p *part) add(n ast.Node, flow bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			p.addValue(v, flow || n.IsFlowStyle)
		}
	case *ast.MappingValueNode:
		p.addValue(n, flow)
	case *ast.SequenceNode:
		p.isList = true
		for _, v := range n.Values {
			one := &part{flow: flow || n.IsFlowStyle, line: lineOf(v), indent: n.Start.Position.Column - 1}
			one.add(v, one.flow)
			p.parts = append(p.parts, one)
		}
	case *ast.StringNode:
		p.value = n.Value
	}
}

func (p *part) addValue(v *ast.MappingValueNode, flow bool) {
	at := v.Key.GetToken()
	one := &part{key: at.Value, flow: flow, line: at.Position.Line - 1, indent: at.Position.Column - 1}
	one.add(v.Value, flow)
	p.parts = append(p.parts, one)
}

// lineOf returns the first line of an element, which is that of its dash.
func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		return m.Values[0].Key.GetToken().Position.Line - 1
	}
	return n.GetToken().Position.Line - 1
}

// bound sets the first and last lines of parts that are beside each other, and of what is below them.
func (e *example) bound(parts []*part, last int) {
	for i, p := range parts {
		if p.flow {
			return
		}
		p.first, p.last = p.line, last
		if i+1 < len(parts) {
			p.last = parts[i+1].line - 1
		}
		for p.first > 0 && e.isComment(p.first-1, p.indent, p.indent) {
			p.first--
		}
		for p.last > p.line && (strings.TrimSpace(e.lines[p.last]) == "" || e.isComment(p.last, 0, p.indent)) {
			p.last--
		}
		e.bound(p.parts, p.last)
	}
}

// isComment reports whether a line is a comment that is indented by from least to most.
func (e *example) isComment(line, least, most int) bool {
	text := strings.TrimLeft(e.lines[line], " ")
	indent := len(e.lines[line]) - len(text)
	return strings.HasPrefix(text, "#") && indent >= least && indent <= most
}
