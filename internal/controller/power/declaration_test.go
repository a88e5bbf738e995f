package power

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
	"github.com/trivet-project/trivet/internal/workflow"
)

func TestDeclaration(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name := fmt.Sprint("m", n)
		intent := trivet.PowerIntent{Want: "on", Boot: "network", Until: time.Now().Add(workflow.IntentTimeout)}
		newPowered(t, f, name, intent)
		w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: name + "-1"},
			Spec: trivet.WorkflowSpec{Machine: name}}
		(&workflow.Run{Spec: &w.Spec, Status: &w.Status}).Start(workflow.Machine{Power: true})
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			m, err := f.Machines.In(tx).Get(name)
			if err != nil {
				return err
			}
			m.Status.Workflow = w.Name
			return errors.Join(f.Machines.In(tx).Put(m), f.Workflows.In(tx).Put(w))
		})
		if err != nil {
			return err
		}
		c := newController(f.Within(scope))
		c.note(name, intent, time.Now())
		if _, err := c.Reconcile(ctx, name); err != nil {
			return err
		}
		if m, err := f.Machines.Get(name); err != nil || m.Status.Power != "on" || m.Status.Intent != nil {
			return fmt.Errorf("the machine is %+v: %w", m, err)
		}
		return nil
	})
}
