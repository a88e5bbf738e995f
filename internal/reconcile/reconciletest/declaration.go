// Package reconciletest checks that a controller's declaration is exact.
package reconciletest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/store"
)

// Scenario makes a controller do everything it can, over tables within a scope. It fails where the controller does.
// n differs in each call, for the names of records.
type Scenario func(ctx context.Context, scope *store.Scope, n int) error

// Exact checks that a controller works within its declaration, and fails without any of the kinds in it: a kind that
// it reads is left out, and one that it writes may be read only.
func Exact(t *testing.T, d reconcile.Declaration, scenario Scenario) {
	t.Helper()
	if err := try(t.Context(), d, scenario, 0); err != nil {
		t.Fatalf("within its declaration: %v", err)
	}
	n := 0
	without := func(less reconcile.Declaration, what string, kind trivet.Kind) {
		t.Helper()
		n++
		if try(t.Context(), less, scenario, n) == nil {
			t.Errorf("controller %s declares that it %s %s, and works without", d.Name, what, kind)
		}
	}
	for _, kind := range d.Reads {
		less := d
		less.Reads = remove(d.Reads, kind)
		without(less, "reads", kind)
	}
	for _, kind := range d.Writes {
		less := d
		less.Writes, less.Reads = remove(d.Writes, kind), append(slices.Clone(d.Reads), kind)
		without(less, "writes", kind)
	}
}

func remove(kinds []trivet.Kind, kind trivet.Kind) []trivet.Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k trivet.Kind) bool { return k == kind })
}

// try runs a scenario within a declaration. A panic is a failure.
func try(ctx context.Context, d reconcile.Declaration, scenario Scenario, n int) (err error) {
	if err := d.Validate(); err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	scope := d.Scope()
	return scenario(store.WithScope(ctx, scope), scope, n)
}
