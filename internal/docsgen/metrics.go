package docsgen

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// metric is one family of metrics.
type metric struct {
	name, help, kind, place string
	labels                  []string
}

// metrics writes the page of all metrics that the packages below root create.
func metrics(root string) (string, error) {
	all, err := findMetrics(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\nA head serves its metrics for Prometheus at `/metrics` of the " +
		"API. Those of package `client`\nare of programs that register `Client.Collector`. Those of etcd, the Go runtime " +
		"and the process are served beside them:\ntheir names begin with `etcd_`, `go_` and `process_`.\n\n| Metric | Type | " +
		"Labels | Description | Package |\n|---|---|---|---|---|\n")
	for _, m := range all {
		labels := make([]string, len(m.labels))
		for i, l := range m.labels {
			labels[i] = code(l)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` |\n", m.name, m.kind, strings.Join(labels, ", "), text(m.help),
			m.place)
	}
	return b.String(), nil
}

// findMetrics finds the calls of prometheus.New... by their source: a metric with labels is in a registry only once it
// has a value.
func findMetrics(root string) (all []metric, err error) {
	for _, top := range []string{"client", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || d.Name() == "testdata" {
				return err
			}
			found, err := packageMetrics(root, dir)
			all = append(all, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

func packageMetrics(root, dir string) (all []metric, err error) {
	if files, _ := filepath.Glob(filepath.Join(dir, "*.go")); len(files) == 0 {
		return nil, nil
	}
	files, err := parseFiles(dir)
	if err != nil {
		return nil, err
	}
	place, err := filepath.Rel(root, dir)
	for _, f := range files {
		v := evaluator{closures: map[string]*ast.FuncLit{}}
		ast.Inspect(f, func(n ast.Node) bool {
			v.learn(n)
			call, ok := n.(*ast.CallExpr)
			if !ok || v.err != nil {
				return v.err == nil
			}
			if kind, ok := constructor(call); ok {
				m := v.metric(call)
				m.kind, m.place = cmp.Or(kind, m.kind), filepath.ToSlash(place)
				all = append(all, m)
			}
			return true
		})
		if v.err != nil {
			return nil, fmt.Errorf("%s: %w", dir, v.err)
		}
	}
	return all, err
}

// constructor reports whether a call creates a metric, and of what type. NewDesc has none of its own.
func constructor(call *ast.CallExpr) (kind string, ok bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "prometheus" {
		return "", false
	}
	name, ok := strings.CutPrefix(sel.Sel.Name, "New")
	switch name = strings.TrimSuffix(strings.TrimSuffix(name, "Vec"), "Func"); {
	case !ok:
		return "", false
	case name == "Desc":
		return "", true
	}
	return strings.ToLower(name), slices.Contains([]string{"Counter", "Gauge", "Histogram", "Summary"}, name)
}

// evaluator computes the few forms of expression by which metrics are described.
type evaluator struct {
	closures map[string]*ast.FuncLit // opts := func(name, help string) prometheus.CounterOpts {...}
	bound    map[string]string       // a closure's parameters
	err      error
}

func (v *evaluator) learn(n ast.Node) {
	if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
		name, isName := a.Lhs[0].(*ast.Ident)
		if f, ok := a.Rhs[0].(*ast.FuncLit); ok && isName {
			v.closures[name.Name] = f
		}
	}
}

func (v *evaluator) metric(call *ast.CallExpr) (m metric) {
	if call.Fun.(*ast.SelectorExpr).Sel.Name == "NewDesc" {
		m = metric{name: v.text(call.Args[0]), help: v.text(call.Args[1]), labels: v.texts(call.Args[2]), kind: "gauge"}
		if strings.HasSuffix(m.name, "_total") {
			m.kind = "counter"
		}
		return m
	}
	m = v.options(call.Args[0])
	if strings.HasSuffix(call.Fun.(*ast.SelectorExpr).Sel.Name, "Vec") {
		m.labels = append(m.labels, v.texts(call.Args[1])...)
	}
	return m
}

// options reads prometheus.CounterOpts{Name: ..., Help: ...}, or a call of a closure that returns them.
func (v *evaluator) options(e ast.Expr) (m metric) {
	if call, ok := e.(*ast.CallExpr); ok {
		return v.called(call)
	}
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		v.fail("options", e)
		return m
	}
	for _, elt := range lit.Elts {
		kv := elt.(*ast.KeyValueExpr)
		switch kv.Key.(*ast.Ident).Name {
		case "Name":
			m.name = v.text(kv.Value)
		case "Help":
			m.help = v.text(kv.Value)
		case "ConstLabels":
			for _, label := range kv.Value.(*ast.CompositeLit).Elts {
				m.labels = append(m.labels, v.text(label.(*ast.KeyValueExpr).Key))
			}
		}
	}
	return m
}

func (v *evaluator) called(call *ast.CallExpr) metric {
	name, _ := call.Fun.(*ast.Ident)
	if name == nil || v.closures[name.Name] == nil {
		v.fail("function", call.Fun)
		return metric{}
	}
	f := v.closures[name.Name]
	inner := evaluator{bound: map[string]string{}}
	i := 0
	for _, param := range f.Type.Params.List {
		for _, p := range param.Names {
			inner.bound[p.Name] = v.text(call.Args[i])
			i++
		}
	}
	ret, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok {
		v.fail("body", f)
		return metric{}
	}
	m := inner.options(ret.Results[0])
	v.err = cmp.Or(v.err, inner.err)
	return m
}

func (v *evaluator) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return v.text(e.X) + v.text(e.Y)
		}
	case *ast.Ident:
		if s, ok := v.bound[e.Name]; ok {
			return s
		}
	}
	v.fail("text", e)
	return ""
}

func (v *evaluator) texts(e ast.Expr) (all []string) {
	if id, ok := e.(*ast.Ident); ok && id.Name == "nil" {
		return nil
	}
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		v.fail("list", e)
		return nil
	}
	for _, elt := range lit.Elts {
		all = append(all, v.text(elt))
	}
	return all
}

func (v *evaluator) fail(what string, e ast.Node) {
	v.err = cmp.Or(v.err, fmt.Errorf("a metric's %s is a %T: docsgen reads only literals", what, e))
}
