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
		name, old := func(of string) string { return fmt.Sprint(of, n) }, time.Now().Add(-30*24*time.Hour)
		address, mac := fmt.Sprint("10.0.0.", n), fmt.Sprintf("52:54:00:00:00:%02x", n)
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(
				f.Workflows.In(tx).Put(&trivet.Workflow{Meta: trivet.Meta{Name: name("p-")},
					Spec:   trivet.WorkflowSpec{Machine: "m", Provision: "p"},
					Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed, Ended: old}}),
				f.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Name: address},
					Spec:   trivet.AddressSpec{Network: "net", MAC: "52:54:00:00:00:01"},
					Status: trivet.AddressStatus{Until: old}}),
				f.MACs.In(tx).Put(&trivet.MAC{Meta: trivet.Meta{Name: mac},
					Spec: trivet.MACSpec{Machine: "m", MachineUID: "gone"}}),
				f.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: name("t")},
					Spec: trivet.TokenSpec{Account: "a", AccountUID: "gone", Hash: "x"}}),
				f.Events.In(tx).Put(&trivet.Event{Meta: trivet.Meta{Name: name("e")},
					Spec: trivet.EventSpec{Subject: "machine/m", SubjectUID: "gone", Time: old, Reason: "Claimed"}}),
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
		for kind, name := range map[trivet.Kind]string{"Workflow": name("p-"), "Address": address, "MAC": mac,
			"Token": name("t"), "Event": name("e")} {
			if _, err := f.Store.Get(kind, name); !errors.Is(err, trivet.ErrNotFound) {
				return fmt.Errorf("%s %s was not collected: %w", kind, name, err)
			}
		}
		return nil
	})
}
