package power

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/provision"
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
		return powerOffFailed(t, ctx, f, c, n)
	})
}

// powerOffFailed powers off a machine that failed, and whose address moves then: its provision waits for that.
func powerOffFailed(t *testing.T, ctx context.Context, f *fleet.Fleet, c *Controller, n int) error {
	name, address := fmt.Sprint("failed", n), fmt.Sprint("10.0.0.", n+1)
	intent := trivet.PowerIntent{Want: "off", Until: time.Now().Add(workflow.IntentTimeout)}
	newPowered(t, f, name, intent)
	_, err := f.Store.Update(t.Context(), func(tx *store.Tx) error {
		m, err := f.Machines.In(tx).Get(name)
		if err != nil {
			return err
		}
		mac := fmt.Sprintf("52:54:00:00:00:%02x", n)
		m.Spec.NICs, m.Status.Workflow = []trivet.NIC{{MAC: mac}}, name+"-1"
		p := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name, UID: name},
			Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"a": "b"}},
			Status: trivet.ProvisionStatus{State: trivet.ProvisionPending, WaitsFor: provision.PowerOf(name),
				Workflow: name + "-1", Spent: []trivet.SpentMachine{{FormerMachine: trivet.FormerMachine{Machine: name,
					MachineUID: m.UID, Address: address}}}}}
		w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: name + "-1"},
			Spec:   trivet.WorkflowSpec{Machine: name, MachineUID: m.UID, Provision: name, ProvisionUID: name},
			Status: trivet.WorkflowStatus{State: trivet.WorkflowFailed}}
		return errors.Join(f.Machines.In(tx).Put(m), f.Workflows.In(tx).Put(w), f.Provisions.In(tx).Create(p),
			f.Addresses.In(tx).Put(&trivet.Address{Meta: trivet.Meta{Name: address},
				Spec: trivet.AddressSpec{Network: "lan", MAC: mac, Machine: name, MachineUID: m.UID}}),
			f.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}))
	})
	if err != nil {
		return err
	}
	c.note(name, intent, time.Now())
	if _, err := c.Reconcile(ctx, name); err != nil {
		return err
	}
	a, err := f.Addresses.Get(address)
	if err != nil || a.Spec.MAC != "" || a.Spec.Provision != name {
		return fmt.Errorf("the address is %+v: %w", a, err)
	}
	return nil
}
