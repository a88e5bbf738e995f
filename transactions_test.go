package trivet_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A transaction's function may run several times, and the commit compares only what it read through the transaction.
// So it must not read the local copy, which nothing compares, nor have effects. TestTransactions follows the calls of
// every function that takes a *store.Tx, or a struct that holds one, and finds both.

// mayCall lists what such functions call nevertheless, as "function: callee", with the reason why nothing is decided
// by it.
var mayCall = map[string]string{
	"internal/api.Handler.releasePorts: internal/store.Table.ListBy": "each address is read again before it is " +
		"deleted; the sweep of leases deletes what is missed",
	"internal/api.Handler.checkAddress: internal/store.Table.SharedBy": "it finds a mistake of an operator; a network " +
		"can be created after the machine all the same",
	"internal/api.Handler.networkWith: internal/store.Table.SharedBy": "as above",
	"internal/api.Handler.hasNetworks: internal/store.Table.After":    "as above",
	"internal/fleet.Fleet.RenamedName: internal/state.Tables.MachinesOnce": "it only names the machine in an error, which " +
		"is found through the transaction",
	"internal/fleet.Fleet.RenamedName: internal/store.Table.GetShared": "as above",
	"internal/fleet.Fleet.workflowName: internal/store.Table.SharedBy": "it proposes a name; claim reads whether a " +
		"run of that name exists",
	"internal/fleet.Fleet.bootAddress: internal/state.Tables.AddressesOf": "it renders the address that the machine " +
		"has now, as a later boot may show another one; an address is read again before it is moved or deleted",
	"internal/fleet.Fleet.bootAddress: internal/store.Table.GetShared":      "as above",
	"internal/fleet.Fleet.network: internal/store.Table.Get":                "as above",
	"internal/fleet.Fleet.keepOne: internal/state.Tables.AddressesOf":       "as above",
	"internal/fleet.Fleet.networkName: internal/state.Tables.NetworkAround": "as below",
	"internal/fleet.Fleet.networkName: internal/store.Table.SharedBy": "it only finds the network whose record, which " +
		"is compared, has the machine's failures",
}

// uncompared are the types whose methods read the local copy or begin another transaction, and the packages whose
// functions have effects.
var (
	uncompared = []string{"internal/store.Table.", "internal/store.Store.", "internal/store.Group.",
		"internal/store.ColdTable.", "internal/state.View.", "internal/state.Tables.", "internal/state.WriteQueue."}
	effects = []string{"net.", "net/http.", "os.", "os/exec.", "time.Sleep", "client.", "internal/peer.",
		"internal/replica.", "internal/blob.Store", "internal/runlog.", "internal/presence.Tracker"}
	harmless = []string{"internal/store.Table.In", "internal/store.ColdTable.In", "net/http.Request.",
		"net/http.Header.", "net.ParseIP", "net.JoinHostPort", "net.SplitHostPort"}
)

func TestTransactions(t *testing.T) {
	g := moduleCalls(t)
	if len(g.roots) < 30 {
		t.Fatalf("only %d functions of transactions were found: is it still *store.Tx that they take?", len(g.roots))
	}
	unused := maps.Clone(mayCall)
	for _, call := range g.forbidden() {
		if _, ok := mayCall[call]; ok {
			delete(unused, call)
			continue
		}
		t.Errorf("%s: a transaction's function reads what the commit does not compare, or has an effect", call)
	}
	for call := range unused {
		t.Errorf("mayCall lists %q, which does not happen", call)
	}
}

// calls is which function of the module refers to which. A function literal is named by its place.
type calls struct {
	of    map[string][]string // by function: what it refers to
	roots []string            // functions of transactions
	// methods are the module's methods by name and signature, for calls through interfaces.
	methods map[string][]string
	// params are the parameters that transactions call, and passed the literals that are passed for them: "f 2".
	params map[string]bool
	passed map[string][]string
	// bypasses are the reads of fields that have a default, not by the methods that return it: "function: Site.Resets".
	bypasses []string
}

// forbidden returns the calls of what must not be called, from functions that are reached from roots.
func (g *calls) forbidden() (found []string) {
	reached, next := map[string]bool{}, slices.Clone(g.roots)
	for param := range g.params {
		next = append(next, g.passed[param]...)
	}
	for len(next) > 0 {
		f := next[len(next)-1]
		next = next[:len(next)-1]
		if reached[f] {
			continue
		}
		reached[f] = true
		for _, callee := range g.of[f] {
			switch {
			case hasAnyPrefix(callee, harmless):
			case hasAnyPrefix(callee, uncompared), hasAnyPrefix(callee, effects):
				found = append(found, f+": "+callee)
			case !strings.HasPrefix(callee, "internal/store."):
				next = append(next, callee)
				next = append(next, g.methods[callee]...)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// loadCalls reads the module's packages, with the types of what they import from the compiler's export data.
func loadCalls(t *testing.T) *calls {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export",
		"./internal/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	var ours []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			goPackage
			Export string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if place, ok := placeOf(p.ImportPath); ok && place != "internal/store" {
			ours = append(ours, p.goPackage)
		}
	}
	l := &loader{files: token.NewFileSet(), calls: &calls{of: map[string][]string{}, methods: map[string][]string{},
		params: map[string]bool{}, passed: map[string][]string{}}}
	l.imports = importer.ForCompiler(l.files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, p := range ours {
		if err := l.load(p); err != nil {
			t.Fatalf("%s: %v", p.ImportPath, err)
		}
	}
	return l.calls
}

type loader struct {
	*calls
	files   *token.FileSet
	imports types.Importer
	info    *types.Info // of the package that is read now
	place   string
	params  map[types.Object]string // of the declaration that is read now
	written map[*ast.SelectorExpr]bool
}

func (l *loader) load(p goPackage) error {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(l.files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	l.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	l.place, _ = placeOf(p.ImportPath)
	conf := types.Config{Importer: l.imports}
	if _, err := conf.Check(p.ImportPath, l.files, files, l.info); err != nil {
		return err
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
				l.declared(d)
			}
		}
	}
	return nil
}

func (l *loader) declared(d *ast.FuncDecl) {
	f := l.info.Defs[d.Name].(*types.Func)
	name, sig := nameOf(f), f.Signature()
	if takesTx(sig) {
		l.roots = append(l.roots, name)
	}
	if sig.Recv() != nil {
		key := methodKey(f)
		l.methods[key] = append(l.methods[key], name)
	}
	l.params = map[types.Object]string{}
	i := 0
	for v := range sig.Params().Variables() {
		l.params[v] = fmt.Sprintf("%s %d", name, i)
		i++
	}
	l.body(name, d.Body, takesTx(sig))
}

// body records what a function refers to. tx: it is a transaction's.
func (l *loader) body(name string, body *ast.BlockStmt, tx bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			l.literal(name, n, tx)
			return false
		case *ast.CallExpr:
			l.arguments(n)
		case *ast.AssignStmt:
			l.assigned(n)
		case *ast.SelectorExpr:
			l.selected(name, n)
		case *ast.Ident:
			switch o := l.info.Uses[n].(type) {
			case *types.Func:
				if o.Pkg() != nil {
					l.of[name] = append(l.of[name], calleeOf(o))
				}
			case *types.Var:
				if param := l.params[o]; param != "" && tx {
					l.calls.params[param] = true
				}
			}
		}
		return true
	})
}

// literal reads a function literal. One that takes a transaction is not run by the function that it is in.
func (l *loader) literal(in string, n *ast.FuncLit, tx bool) {
	own := l.literalName(n)
	if sig, ok := l.info.Types[n].Type.(*types.Signature); ok && takesTx(sig) {
		l.roots, tx = append(l.roots, own), true
	} else {
		l.of[in] = append(l.of[in], own)
	}
	l.body(own, n.Body, tx)
}

// arguments records the literals that a call passes.
func (l *loader) arguments(n *ast.CallExpr) {
	var f *types.Func
	switch fun := n.Fun.(type) {
	case *ast.SelectorExpr:
		f, _ = l.info.Uses[fun.Sel].(*types.Func)
	case *ast.Ident:
		f, _ = l.info.Uses[fun].(*types.Func)
	}
	if f == nil || f.Pkg() == nil {
		return
	}
	for i, arg := range n.Args {
		if literal, ok := arg.(*ast.FuncLit); ok {
			param := fmt.Sprintf("%s %d", nameOf(f), i)
			l.passed[param] = append(l.passed[param], l.literalName(literal))
		}
	}
}

func (l *loader) literalName(n *ast.FuncLit) string {
	at := l.files.Position(n.Pos())
	return fmt.Sprintf("%s/%s:%d", l.place, filepath.Base(at.Filename), at.Line)
}

// calleeOf names what is called: of an interface's method what its implementations are found by.
func calleeOf(f *types.Func) string {
	if recv := f.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
		return methodKey(f)
	}
	return nameOf(f)
}

func methodKey(f *types.Func) string {
	sig := f.Signature()
	plain := types.NewSignatureType(nil, nil, nil, sig.Params(), sig.Results(), sig.Variadic())
	return "method " + f.Name() + " " + types.TypeString(plain, (*types.Package).Path)
}

// nameOf returns a function's package, type and name: "internal/fleet.Fleet.Claim".
func nameOf(f *types.Func) string {
	f = f.Origin()
	place := strings.TrimPrefix(f.Pkg().Path(), module+"/")
	if recv := f.Signature().Recv(); recv != nil {
		if named := namedOf(recv.Type()); named != nil {
			return place + "." + named.Obj().Name() + "." + f.Name()
		}
	}
	return place + "." + f.Name()
}

func namedOf(t types.Type) *types.Named {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	return named
}

// takesTx reports whether a function has a transaction: as a parameter or receiver, or in a struct that is one.
func takesTx(sig *types.Signature) bool {
	if recv := sig.Recv(); recv != nil && holdsTx(recv.Type()) {
		return true
	}
	for v := range sig.Params().Variables() {
		if holdsTx(v.Type()) {
			return true
		}
	}
	return false
}

func holdsTx(t types.Type) bool {
	if isTx(t) {
		return true
	}
	named := namedOf(t)
	if named == nil {
		return false
	}
	if s, ok := named.Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if isTx(f.Type()) {
				return true
			}
		}
	}
	return false
}

func isTx(t types.Type) bool {
	named := namedOf(t)
	return named != nil && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == module+"/internal/store" &&
		(named.Obj().Name() == "Tx" || named.Obj().Name() == "View")
}
