package workflow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// emptyError: a text would contain a fact that is not known.
type emptyError struct{ field string }

func (e emptyError) Error() string {
	return fmt.Sprintf("uses %s, which is empty for this machine: boot it once, or set spec.nics[].address, and complete "+
		"its network; or write {{if %s}} or {{default}} where it may be empty", e.field, e.field)
}

// require makes a text fail where it writes a fact of the network, or passes it to a function, while that is empty.
// Conditions and the arguments of default may be empty.
func require(t *template.Template) {
	t.Funcs(template.FuncMap{"require": func(field string, v any) (any, error) {
		switch v := v.(type) {
		case string:
			if v == "" {
				return nil, emptyError{field}
			}
		case []string:
			if len(v) == 0 {
				return nil, emptyError{field}
			}
		}
		return v, nil
	}})
	walk(t.Root, 0, func(n parse.Node, _ int) {
		action, ok := n.(*parse.ActionNode)
		if !ok || slices.ContainsFunc(action.Pipe.Cmds, isDefault) {
			return
		}
		for _, cmd := range action.Pipe.Cmds {
			requireArgs(cmd)
		}
	})
}

func isDefault(cmd *parse.CommandNode) bool {
	name, ok := cmd.Args[0].(*parse.IdentifierNode)
	return ok && name.Ident == "default"
}

func requireArgs(cmd *parse.CommandNode) {
	for i, arg := range cmd.Args {
		f, ok := arg.(*parse.FieldNode)
		if !ok || f.Ident[0] != "Network" || len(f.Ident) < 2 {
			continue
		}
		name := "." + strings.Join(f.Ident, ".")
		call := []parse.Node{parse.NewIdentifier("require").SetPos(f.Pos),
			&parse.StringNode{NodeType: parse.NodeString, Pos: f.Pos, Quoted: fmt.Sprintf("%q", name), Text: name}, f}
		if len(cmd.Args) == 1 {
			cmd.Args = call
			return
		}
		cmd.Args[i] = &parse.PipeNode{NodeType: parse.NodePipe, Pos: f.Pos, Line: 1,
			Cmds: []*parse.CommandNode{{NodeType: parse.NodeCommand, Pos: f.Pos, Args: call}}}
	}
}

// asEmpty returns the fact that was empty, where that is why a text failed.
func asEmpty(err error) (emptyError, bool) {
	var e emptyError
	return e, errors.As(err, &e)
}
