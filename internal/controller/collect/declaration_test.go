package collect

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/runlog"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

func TestDeclaration(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	logs, err := runlog.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close() })
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		run, address, token := fmt.Sprint("p-", n), fmt.Sprint("10.0.0.", n), fmt.Sprint("t", n)
		old := time.Now().Add(-30 * 24 * time.Hour)
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(
				f.Workflows.In(tx).Put(&trivet.Workflow{Meta: trivet.Meta{Name: run},
					Spec:   trivet.WorkflowSpec{Machine: "m", Provision: "p"},
					Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed, Ended: old}}),
				f.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Name: address},
					Spec:   trivet.AddressSpec{Network: "net", MAC: "52:54:00:00:00:01"},
					Status: trivet.AddressStatus{Until: old}}),
				f.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: token},
					Spec: trivet.TokenSpec{Account: "a", Hash: "h", Expires: old}}),
			)
		})
		if err != nil {
			return err
		}
		c := New(f.Tables.Within(scope), logs)
		for _, key := range c.Keys() {
			if _, err := c.Reconcile(ctx, key); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		_, noRun := f.Workflows.Get(run)
		_, noAddress := f.Addresses.Get(address)
		_, noToken := f.Tokens.Get(token)
		if !errors.Is(noRun, trivet.ErrNotFound) || !errors.Is(noAddress, trivet.ErrNotFound) ||
			!errors.Is(noToken, trivet.ErrNotFound) {
			return fmt.Errorf("not collected: %w, %w, %w", noRun, noAddress, noToken)
		}
		return nil
	})
}
