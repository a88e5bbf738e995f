package deadline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/presence"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// claim creates a machine without a BMC, and starts a run on it that has one attempt for each step.
func claim(ctx context.Context, f *fleet.Fleet, name string) error {
	limits := map[string]trivet.Limit{trivet.StepDHCP: {Timeout: trivet.Duration(time.Minute), Retries: new(0)}}
	_, err := f.Store.Update(ctx, func(tx *store.Tx) error {
		return errors.Join(
			f.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Name: "t"}, Spec: trivet.TemplateSpec{
				Limits: limits, Actions: []trivet.Action{{Name: "work", Use: "noop"}}}}),
			f.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: name},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: "52:54:00:00:00:01"}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}),
			f.Provisions.In(tx).Put(&trivet.Provision{Meta: trivet.Meta{Name: name},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: name}}),
		)
	})
	return errors.Join(err, f.Claim(ctx, name))
}

func newController(f *fleet.Fleet) *Controller {
	return New(Config{Fleet: f, Presence: presence.New(), Tables: f.Tables, Rank: func(string) int {
		return 0
	}, Quorum: func() bool { return true }})
}

// advance lets time pass in which the wait could have ended.
func (c *Controller) advance(d time.Duration) {
	c.uptime.mu.Lock()
	defer c.uptime.mu.Unlock()
	c.uptime.sum += d
}

func TestDeclaration(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, n int) error {
		name := fmt.Sprint("m", n)
		if err := claim(t.Context(), f, name); err != nil {
			return err
		}
		c := newController(f.Within(scope))
		for _, d := range []time.Duration{0, 40 * time.Second, 40 * time.Second} {
			c.advance(d)
			if _, err := c.Reconcile(ctx, name+"-1"); err != nil {
				return err
			}
		}
		if p, err := f.Provisions.Get(name); err != nil || p.Status.State != trivet.ProvisionFailed {
			return fmt.Errorf("the provision is %+v: %w", p, err)
		}
		return nil
	})
}

// How much of a wait is used is saved, and another head goes on from there.
func TestWaitIsSaved(t *testing.T) {
	f := fleet.New(storetest.New(t, state.New), "head0")
	if err := claim(t.Context(), f, "m1"); err != nil {
		t.Fatal(err)
	}
	reconcile := func(c *Controller) {
		t.Helper()
		if _, err := c.Reconcile(t.Context(), "m1-1"); err != nil {
			t.Fatal(err)
		}
	}
	first := newController(f)
	reconcile(first)
	first.advance(40 * time.Second)
	reconcile(first)
	w, err := f.Workflows.Get("m1-1")
	if err != nil || w.Status.Current().Elapsed.D() < 40*time.Second {
		t.Fatalf("%+v, %v", w.Status.Current(), err)
	}
	second := newController(f)
	reconcile(second)
	second.advance(25 * time.Second)
	reconcile(second)
	if w, err := f.Workflows.Get("m1-1"); err != nil || w.Status.State != trivet.WorkflowFailed {
		t.Errorf("after 65 s of a minute the run is %s, %v", w.Status.State, err)
	}
}
