package trivet_test

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// mayBypass lists who reads a field that has a default without it, by function and field, with the reason.
var mayBypass = map[string]string{}

// The default of a field is what its method returns, as LeaseOrDefault for Lease, and the reference is written from
// that. So nothing reads such a field otherwise, but the validation of what was written.
func TestDefaultsAreNotBypassed(t *testing.T) {
	unused := maps.Clone(mayBypass)
	for _, read := range slices.Compact(slices.Sorted(slices.Values(moduleCalls(t).bypasses))) {
		if strings.HasPrefix(read, module+".") { // the root package, which checks what was written
			continue
		}
		if _, ok := mayBypass[read]; !ok {
			t.Errorf("%s: use its method, which has the default", read)
		}
		delete(unused, read)
	}
	for read := range unused {
		t.Errorf("mayBypass lists %q, which does not happen", read)
	}
}

// assigned keeps which fields are written.
func (l *loader) assigned(n *ast.AssignStmt) {
	for _, to := range n.Lhs {
		if field, ok := to.(*ast.SelectorExpr); ok {
			if l.written == nil {
				l.written = map[*ast.SelectorExpr]bool{}
			}
			l.written[field] = true
		}
	}
}

// selected records a read of a field that has a default.
func (l *loader) selected(in string, n *ast.SelectorExpr) {
	s := l.info.Selections[n]
	if s == nil || s.Kind() != types.FieldVal || l.written[n] {
		return
	}
	of := namedOf(s.Recv())
	if of == nil || of.Obj().Pkg() == nil || of.Obj().Pkg().Path() != module {
		return
	}
	method, _, _ := types.LookupFieldOrMethod(types.NewPointer(of), true, of.Obj().Pkg(), n.Sel.Name+"OrDefault")
	if _, ok := method.(*types.Func); ok {
		l.bypasses = append(l.bypasses, in+": "+of.Obj().Name()+"."+n.Sel.Name)
	}
}
