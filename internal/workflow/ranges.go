package workflow

import (
	"fmt"
	"text/template"
	"text/template/parse"

	"github.com/trivet-project/trivet"
)

// A text/template cannot be stopped while it executes, so that it is bounded by construction: the only node that
// repeats is a range, and every range pays for all of its iterations, before the first one, to a function that is
// added to its parse tree. Whatever the tree does in an iteration is in proportion to its nodes, or is paid for by
// the functions that it calls.

// rangeProblem returns why a range may not be used; empty: it may. vars are the values of all variables.
func rangeProblem(n *parse.RangeNode, depth int, vars variables) string {
	switch {
	case depth > 2:
		return "has a range in a range in a range"
	case !vars.isData(n.Pipe, map[string]bool{}):
		return fmt.Sprintf("ranges over something that is not a field such as .Machine.MACs: %.60s", n.Pipe)
	}
	return ""
}

// variables are the pipelines that are assigned to each variable of a text, wherever that is. nil stands for what a
// range assigns.
type variables map[string][]*parse.PipeNode

func variablesOf(root parse.Node) variables {
	vars := variables{}
	assign := func(p *parse.PipeNode, value *parse.PipeNode) {
		for _, v := range p.Decl {
			vars[v.Ident[0]] = append(vars[v.Ident[0]], value)
		}
	}
	walk(root, 0, func(n parse.Node, _ int) {
		switch n := n.(type) {
		case *parse.RangeNode:
			assign(n.Pipe, nil)
		case *parse.PipeNode:
			assign(n, n)
		}
	})
	return vars
}

// isData reports whether a pipeline's value is certainly a field of [Data], and not a number. seen are the variables
// that led to it.
func (vars variables) isData(p *parse.PipeNode, seen map[string]bool) bool {
	if p == nil || len(p.Cmds) != 1 || len(p.Cmds[0].Args) != 1 {
		return false
	}
	switch n := p.Cmds[0].Args[0].(type) {
	case *parse.FieldNode:
		return true
	case *parse.VariableNode:
		name := n.Ident[0]
		if len(n.Ident) > 1 || seen[name] { // a number has no fields
			return true
		}
		seen[name] = true
		for _, value := range vars[name] {
			if !vars.isData(value, seen) {
				return false
			}
		}
		return len(vars[name]) > 0
	}
	return false
}

// each is the name of the function that ranges pay to. Texts cannot call it.
const each = "each"

// nodeCost is what it costs to execute one node, in the unit of [MaxWork]: about as long as to write so many bytes.
const nodeCost = 8

// chargeRange makes a range pay for its iterations.
func chargeRange(t *template.Template, n *parse.RangeNode) {
	cost := nodeCost
	walk(n.List, 0, func(parse.Node, int) { cost += nodeCost })
	call := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{
		parse.NewIdentifier(each).SetPos(n.Pos).SetTree(t.Tree),
		&parse.NumberNode{NodeType: parse.NodeNumber, Pos: n.Pos, IsInt: true, Int64: int64(cost), Text: fmt.Sprint(cost)},
	}}
	n.Pipe.Cmds = append(n.Pipe.Cmds, call)
}

// each returns a value that is about to be iterated over, if that is a list or a map and what an iteration costs is
// left for all of it.
func (b *budget) each(cost int, v any) (any, error) {
	n := 0
	switch v := v.(type) {
	case []string:
		n = len(v)
	case map[string]string:
		n = len(v)
	default:
		return nil, fmt.Errorf("%w: cannot range over a %T; use a list or map such as .Machine.MACs", trivet.ErrInvalid, v)
	}
	return v, b.spend(n * cost)
}
