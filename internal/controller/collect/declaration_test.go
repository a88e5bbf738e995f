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
	"github.com/trivet-project/trivet/internal/uptime"
)

func TestDeclaration(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	logs, err := runlog.Open(t.TempDir(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { logs.Close() })
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name, old := func(of string) string { return fmt.Sprint(of, n) }, time.Now().Add(-30*24*time.Hour)
		address, mac := fmt.Sprint("10.0.0.", n), fmt.Sprintf("52:54:00:00:00:%02x", n)
		_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(
				f.Workflows.In(tx).Put(&trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: name("p-")},
					Spec:   trivet.WorkflowSpec{Machine: "m", Provision: "p"},
					Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed, Ended: old}}),
				f.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Name: address},
					Spec:   trivet.AddressSpec{Network: "net", MAC: "52:54:00:00:00:01"},
					Status: trivet.AddressStatus{Until: old, Lasts: trivet.Duration(time.Hour)}}),
				f.MACs.In(tx).Put(&trivet.MAC{Meta: trivet.Meta{Name: mac},
					Spec: trivet.MACSpec{Machine: "m", MachineUID: "gone"}}),
				f.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: name("t")},
					Spec: trivet.TokenSpec{Account: "a", AccountUID: "gone", Hash: "x"}}),
				f.Tokens.In(tx).Put(&trivet.Token{Meta: trivet.Meta{Name: name("old-t")},
					Spec: trivet.TokenSpec{Join: trivet.RoleVoter, Hash: "x", Expires: old}}),
				f.Events.In(tx).Put(&trivet.Event{Meta: trivet.Meta{Name: trivet.EventName(name("gone"), 1)},
					Spec: trivet.EventSpec{Subject: "machine/m", SubjectUID: name("gone"), Time: old, Reason: "Claimed"}}),
				f.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: name("head")},
					Status: trivet.HeadStatus{State: trivet.HeadRemoved, Removed: old.Add(-time.Hour)}}),
			)
		})
		if err != nil {
			return err
		}
		gone := state.NewCheckpoints(f.Store, name("gone-head-"))
		if err := gone.Save(t.Context(), uptime.Checkpoint{{1}: time.Second}); err != nil {
			return err
		}
		c := New(Config{Tables: f.Tables.Within(scope), Head: "head0", Logs: logs, Blobs: noBlobs{},
			Expired: func(*trivet.Address) bool { return true }})
		for _, key := range c.Keys() {
			if _, err := c.Reconcile(ctx, key); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		for what, left := range map[string]error{
			"run": missing(f.Workflows.Get("default/" + name("p-"))), "address": missing(f.Addresses.Get(address)),
			"MAC": missing(f.MACs.Get(mac)), "token": missing(f.Tokens.Get(name("t"))),
			"expired token": missing(f.Tokens.Get(name("old-t"))),
			"event":         missing(f.Events.Get(t.Context(), trivet.EventName(name("gone"), 1))),
			"head":          missing(f.Heads.Get(name("head"))),
		} {
			if !errors.Is(left, trivet.ErrNotFound) {
				return fmt.Errorf("the %s was not collected: %w", what, left)
			}
		}
		return nil
	})
}

// missing returns the error of a Get.
func missing[T any](_ *T, err error) error { return err }
