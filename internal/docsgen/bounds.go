package docsgen

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"regexp"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// boundName is how the constants that comments refer to are named.
var boundName = regexp.MustCompile("`?\\b((?:Default|Max|Role)[A-Z][A-Za-z]*|EventsPerSubject|SiteName)\\b`?")

// withBounds makes a comment a sentence in which each constant has its value.
func (s *source) withBounds(doc string) string {
	return boundName.ReplaceAllStringFunc(sentence(doc), func(name string) string {
		if v := s.bounds[strings.Trim(name, "`")]; v != "" {
			return code(v)
		}
		return name
	})
}

// addBound keeps the value of a constant, as people write it.
func (s *source) addBound(spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			return
		}
		s.bounds[name.Name] = ""
		v := s.evaluate(spec.Values[i])
		switch v.Kind() {
		case constant.String:
			s.bounds[name.Name] = constant.StringVal(v)
		case constant.Int:
			s.bounds[name.Name] = v.ExactString()
			if isDuration(spec.Values[i]) {
				n, _ := constant.Int64Val(v)
				s.bounds[name.Name] = short(trivet.Duration(n))
			}
		}
	}
}

func isDuration(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && fmt.Sprint(call.Fun) == "Duration"
}

var timeUnits = map[string]time.Duration{"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}

// evaluate computes a constant expression; unknown where it has a form that the root package does not use.
func (s *source) evaluate(e ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.Ident:
		return constant.MakeFromLiteral(s.bounds[e.Name], token.INT, 0)
	case *ast.SelectorExpr:
		return constant.MakeInt64(int64(timeUnits[e.Sel.Name]))
	case *ast.CallExpr:
		if len(e.Args) == 1 && isDuration(e) {
			return s.evaluate(e.Args[0])
		}
	case *ast.BinaryExpr:
		x, y := s.evaluate(e.X), s.evaluate(e.Y)
		switch {
		case x.Kind() != constant.Int || y.Kind() != constant.Int:
		case e.Op == token.SHL:
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, token.SHL, uint(n))
		case e.Op == token.MUL || e.Op == token.ADD || e.Op == token.SUB:
			return constant.BinaryOp(x, e.Op, y)
		}
	}
	return constant.MakeUnknown()
}

// bootSteps lists the steps that a run has besides its actions, with their default limits.
func bootSteps(src *source) string {
	var b strings.Builder
	b.WriteString("\n## Boot steps\n\nThe steps of a run besides its actions. " +
		"A template and the site override these limits by `spec.limits`.\n\n" +
		"| Step | Reached when | Timeout | Retries |\n|---|---|---|---|\n")
	for _, step := range trivet.BootSteps {
		l := trivet.DefaultLimits[step]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d |\n", step, text(src.docOf(step)), short(l.Timeout), *l.Retries)
	}
	return b.String()
}
