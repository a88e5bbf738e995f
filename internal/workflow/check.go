package workflow

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// Check reports at apply what would fail at the claim: texts that do not parse, unknown names, undeclared parameters,
// and constructs that could run without end.
func Check(t *trivet.Template) error {
	declared := map[string]bool{}
	for _, p := range t.Spec.Parameters {
		declared[p.Name] = true
	}
	_, err := eachText(t, func(field, text string) (string, error) {
		parsed, err := parseText(field, text, nil)
		if err == nil {
			err = names(field, parsed.Root, declared)
		}
		return text, err
	})
	return errors.Join(err, eachAction(t.Spec.Actions, actionspec.Check))
}

// CheckRendered validates the arguments of rendered actions, as the agent will.
func CheckRendered(actions []trivet.Action) error {
	return eachAction(actions, actionspec.CheckRendered)
}

// maxStatus is how much of a record the status of a run may need while it goes on, in bytes.
const maxStatus = 160 << 10

// CheckSize refuses a new workflow whose record could grow beyond the limit, so that reports would be refused.
func CheckSize(w *trivet.Workflow) error {
	text, err := json.Marshal(w)
	if err == nil && len(text) > trivet.MaxRecord-maxStatus {
		err = fmt.Errorf("%w: the rendered template has %d bytes; the maximum is %d", trivet.ErrTooLarge, len(text),
			trivet.MaxRecord-maxStatus)
	}
	return err
}

func eachAction(actions []trivet.Action, check func(field string, a trivet.Action) error) error {
	var errs []error
	for i, a := range actions {
		errs = append(errs, check(fmt.Sprintf("spec.actions[%d]", i), a))
	}
	return errors.Join(errs...)
}

// MaxSource bounds one text of a template, in bytes.
const MaxSource = 64 << 10

// parseText reads one text and refuses what could loop: ranges over anything but data, ranges in ranges in ranges, and
// templates that call templates. What its ranges and functions do is charged to left.
func parseText(field, text string, left *budget) (*template.Template, error) {
	if len(text) > MaxSource {
		return nil, &trivet.FieldError{Field: field, Problem: fmt.Sprintf("has %d bytes; at most %d", len(text),
			MaxSource)}
	}
	t, err := template.New(field).Option("missingkey=error").Funcs(functions(left)).Parse(text)
	if err != nil {
		return nil, &trivet.FieldError{Field: field, Problem: plain(field, err)}
	}
	if t.Tree == nil { // an empty text
		return template.Must(template.New(field).Parse(" ")), nil
	}
	if len(t.Templates()) > 1 {
		return nil, &trivet.FieldError{Field: field, Problem: "defines a template; only plain texts are supported"}
	}
	if problem := constructs(t.Root); problem != "" {
		return nil, &trivet.FieldError{Field: field, Problem: problem}
	}
	walk(t.Root, 0, func(n parse.Node, _ int) {
		if r, ok := n.(*parse.RangeNode); ok {
			chargeRange(t, r)
		}
	})
	return t, nil
}

// constructs returns the problem of a text that uses what is not supported; empty: none.
func constructs(root parse.Node) (problem string) {
	vars := variablesOf(root)
	walk(root, 0, func(n parse.Node, depth int) {
		found := ""
		switch n := n.(type) {
		case *parse.IdentifierNode:
			if !callable[n.Ident] {
				found = fmt.Sprintf("calls %s, which is unknown; use one of %s", n.Ident,
					strings.Join(slices.Sorted(maps.Keys(callable)), ", "))
			}
		case *parse.TemplateNode:
			found = "calls a template; only plain texts are supported"
		case *parse.RangeNode:
			found = rangeProblem(n, depth, vars)
		}
		problem = cmp.Or(problem, found)
	})
	return problem
}

// walk visits every node; depth counts the ranges and withs around it, itself included.
func walk(n parse.Node, depth int, visit func(parse.Node, int)) {
	if v := reflect.ValueOf(n); !v.IsValid() || v.IsNil() {
		return
	}
	branch := func(b *parse.BranchNode, inner int) {
		walk(b.Pipe, depth, visit)
		walk(b.List, inner, visit)
		walk(b.ElseList, depth, visit)
	}
	switch n := n.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			walk(child, depth, visit)
		}
		return
	case *parse.RangeNode:
		visit(n, depth+1)
		branch(&n.BranchNode, depth+1)
		return
	case *parse.WithNode:
		branch(&n.BranchNode, depth+1)
	case *parse.IfNode:
		branch(&n.BranchNode, depth)
	case *parse.ActionNode:
		walk(n.Pipe, depth, visit)
	case *parse.PipeNode:
		for _, cmd := range n.Cmds {
			walk(cmd, depth, visit)
		}
	case *parse.ChainNode:
		walk(n.Node, depth, visit)
	case *parse.CommandNode:
		for _, arg := range n.Args {
			walk(arg, depth, visit)
		}
	}
	visit(n, depth)
}

// names checks every field that is looked up from the top against Data.
func names(field string, root parse.Node, declared map[string]bool) error {
	var err error
	walk(root, 0, func(n parse.Node, depth int) {
		f, ok := n.(*parse.FieldNode)
		if !ok || depth > 0 || err != nil {
			return
		}
		if problem := lookUp(f.Ident, declared); problem != "" {
			err = &trivet.FieldError{Field: field, Problem: problem}
		}
	})
	return err
}

func lookUp(path []string, declared map[string]bool) string {
	t := reflect.TypeFor[Data]()
	for i, name := range path {
		switch t.Kind() {
		case reflect.Struct:
			f, ok := t.FieldByName(name)
			if !ok {
				return fmt.Sprintf("uses .%s, which does not exist%s", strings.Join(path[:i+1], "."), suggest(name, t))
			}
			t = f.Type
		case reflect.Map:
			if path[0] == "Params" && !declared[name] {
				return fmt.Sprintf("uses .Params.%s, which is not a parameter of the template%s", name,
					suggestParameter(name, declared))
			}
			t = t.Elem()
		default:
			return fmt.Sprintf("uses .%s, but .%s is a text", strings.Join(path[:i+1], "."),
				strings.Join(path[:i], "."))
		}
	}
	return ""
}

// suggest returns the field of a struct that a name may have meant, or all of them.
func suggest(name string, t reflect.Type) string {
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		known[f.Name] = true
	}
	return apitypes.Suggest(name, known)
}
